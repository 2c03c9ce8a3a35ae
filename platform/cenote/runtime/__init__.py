"""Runtimes: persistent Python namespaces in jails, and what goes into and comes out of them.

Names are loaded on first use: who needs one module of this package, such as where a platform listens, does not wait
for all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cenote.runtime.asynchronous import AsyncPythonRuntime
    from cenote.runtime.file_work import FileEvent
    from cenote.runtime.files import AsyncFiles, AsyncFileWatch, Files, FileWatch
    from cenote.runtime.final_state import FinalState
    from cenote.runtime.injectables import Function, Injectable, Type, Variable
    from cenote.runtime.ipython_runtime import (
        CellError,
        ErrorFeedbackMode,
        IPyKernelRuntime,
        IPythonRuntime,
        RuntimeExecutionError,
        RuntimeStateLostError,
        TextResult,
    )
    from cenote.runtime.merging import Merge, MergeConflictError
    from cenote.runtime.process import AsyncProcess, AsyncProcessStream, Process, ProcessStream
    from cenote.runtime.processes import ProcessResult
    from cenote.runtime.references import ObjectReference
    from cenote.runtime.storage import foretold
    from cenote.runtime.sync import PythonRuntime
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
    from cenote_worker.results import (
        CellUsage,
        ErrorInfo,
        ExecutionResult,
        FileInfo,
        FolderListing,
        JailStatus,
        Notice,
        Rollback,
        SnapshotInfo,
        Span,
        VariableInfo,
    )

_NAMES = {
    "cenote.runtime.asynchronous": ("AsyncPythonRuntime",),
    "cenote.runtime.file_work": ("FileEvent",),
    "cenote.runtime.files": (
        "AsyncFiles",
        "AsyncFileWatch",
        "Files",
        "FileWatch",
    ),
    "cenote.runtime.final_state": ("FinalState",),
    "cenote.runtime.injectables": (
        "Function",
        "Injectable",
        "Type",
        "Variable",
    ),
    "cenote.runtime.ipython_runtime": (
        "CellError",
        "ErrorFeedbackMode",
        "IPyKernelRuntime",
        "IPythonRuntime",
        "RuntimeExecutionError",
        "RuntimeStateLostError",
        "TextResult",
    ),
    "cenote.runtime.merging": (
        "Merge",
        "MergeConflictError",
    ),
    "cenote.runtime.process": ("AsyncProcess", "AsyncProcessStream", "Process", "ProcessStream"),
    "cenote.runtime.processes": ("ProcessResult",),
    "cenote.runtime.references": ("ObjectReference",),
    "cenote.runtime.storage": ("foretold",),
    "cenote.runtime.sync": ("PythonRuntime",),
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
    "cenote_worker.results": (
        "CellUsage",
        "ErrorInfo",
        "ExecutionResult",
        "FileInfo",
        "FolderListing",
        "JailStatus",
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
