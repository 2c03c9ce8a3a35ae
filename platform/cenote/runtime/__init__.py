"""Runtimes: persistent Python namespaces in jails, and what goes into and comes out of them.

Names are loaded on first use: who needs one module of this package, such as where a platform listens, does not wait
for all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cenote.runtime.core.backends import foretold
    from cenote.runtime.core.file_programs import FileEvent
    from cenote.runtime.core.merging import Merge, MergeConflictError
    from cenote.runtime.core.processes import ProcessResult
    from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
    from cenote.runtime.faces.files import AsyncFiles, AsyncFileWatch, Files, FileWatch
    from cenote.runtime.faces.final_state import FinalState
    from cenote.runtime.faces.ipython import (
        CellError,
        ErrorFeedbackMode,
        IPyKernelRuntime,
        IPythonRuntime,
        RuntimeExecutionError,
        RuntimeStateLostError,
        TextResult,
    )
    from cenote.runtime.faces.process import AsyncProcess, AsyncProcessStream, Process, ProcessStream
    from cenote.runtime.faces.sync import PythonRuntime
    from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
    from cenote.runtime.inject.references import ObjectReference
    from cenote_worker.checkpoints.errors import (
        CheckpointDamagedError,
        CheckpointError,
        CheckpointRefusedError,
        IncompleteForkError,
        IncompleteRestoreError,
        NewerCheckpointError,
        NotDurableError,
        StoreBusyError,
        StoreFailedError,
        StoreTakenError,
    )
    from cenote_worker.checkpoints.fidelity import Fidelity
    from cenote_worker.checkpoints.restoring import verify
    from cenote_worker.checkpoints.store import CheckpointInfo, CheckpointStore
    from cenote_worker.egress.ledger import Decision
    from cenote_worker.execution.results import (
        CellUsage,
        ErrorInfo,
        ExecutionResult,
        FileInfo,
        FolderListing,
        JailStatus,
        LiveOutput,
        Notice,
        Rollback,
        SnapshotInfo,
        Span,
        VariableInfo,
    )

_NAMES = {
    "cenote.runtime.faces.asynchronous": ("AsyncPythonRuntime",),
    "cenote.runtime.core.file_programs": ("FileEvent",),
    "cenote.runtime.faces.files": (
        "AsyncFiles",
        "AsyncFileWatch",
        "Files",
        "FileWatch",
    ),
    "cenote.runtime.faces.final_state": ("FinalState",),
    "cenote.runtime.inject.injectables": (
        "Function",
        "Injectable",
        "Type",
        "Variable",
    ),
    "cenote.runtime.faces.ipython": (
        "CellError",
        "ErrorFeedbackMode",
        "IPyKernelRuntime",
        "IPythonRuntime",
        "RuntimeExecutionError",
        "RuntimeStateLostError",
        "TextResult",
    ),
    "cenote.runtime.core.merging": (
        "Merge",
        "MergeConflictError",
    ),
    "cenote.runtime.faces.process": ("AsyncProcess", "AsyncProcessStream", "Process", "ProcessStream"),
    "cenote.runtime.core.processes": ("ProcessResult",),
    "cenote.runtime.inject.references": ("ObjectReference",),
    "cenote.runtime.core.backends": ("foretold",),
    "cenote.runtime.faces.sync": ("PythonRuntime",),
    "cenote_worker.checkpoints.errors": (
        "CheckpointDamagedError",
        "CheckpointError",
        "CheckpointRefusedError",
        "IncompleteForkError",
        "IncompleteRestoreError",
        "NewerCheckpointError",
        "NotDurableError",
        "StoreBusyError",
        "StoreFailedError",
        "StoreTakenError",
    ),
    "cenote_worker.checkpoints.fidelity": ("Fidelity",),
    "cenote_worker.checkpoints.restoring": ("verify",),
    "cenote_worker.checkpoints.store": (
        "CheckpointInfo",
        "CheckpointStore",
    ),
    "cenote_worker.egress.ledger": ("Decision",),
    "cenote_worker.execution.results": (
        "CellUsage",
        "ErrorInfo",
        "ExecutionResult",
        "FileInfo",
        "FolderListing",
        "JailStatus",
        "LiveOutput",
        "Notice",
        "Rollback",
        "SnapshotInfo",
        "Span",
        "VariableInfo",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "AsyncFiles",
    "AsyncFileWatch",
    "AsyncProcess",
    "AsyncProcessStream",
    "AsyncPythonRuntime",
    "CellError",
    "CellUsage",
    "CheckpointDamagedError",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointRefusedError",
    "CheckpointStore",
    "Decision",
    "ErrorFeedbackMode",
    "ErrorInfo",
    "ExecutionResult",
    "Fidelity",
    "FileEvent",
    "FileInfo",
    "Files",
    "FileWatch",
    "FinalState",
    "FolderListing",
    "foretold",
    "Function",
    "IncompleteForkError",
    "IncompleteRestoreError",
    "Injectable",
    "IPyKernelRuntime",
    "IPythonRuntime",
    "JailStatus",
    "LiveOutput",
    "Merge",
    "MergeConflictError",
    "NewerCheckpointError",
    "NotDurableError",
    "Notice",
    "ObjectReference",
    "Process",
    "ProcessResult",
    "ProcessStream",
    "PythonRuntime",
    "Rollback",
    "RuntimeExecutionError",
    "RuntimeStateLostError",
    "SnapshotInfo",
    "Span",
    "StoreBusyError",
    "StoreFailedError",
    "StoreTakenError",
    "TextResult",
    "Type",
    "Variable",
    "VariableInfo",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
