"""Runtimes: persistent Python namespaces in jails, and what goes into and comes out of them."""

from __future__ import annotations

from cenote.runtime.asynchronous import AsyncPythonRuntime
from cenote.runtime.files import AsyncFiles, Files
from cenote.runtime.final_state import FinalState
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.merging import Merge, MergeConflictError
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

__all__ = [
    "AsyncFiles",
    "AsyncPythonRuntime",
    "CellUsage",
    "CheckpointDamagedError",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointRefusedError",
    "CheckpointStore",
    "Decision",
    "ErrorInfo",
    "ExecutionResult",
    "Fidelity",
    "FileInfo",
    "Files",
    "FinalState",
    "FolderListing",
    "foretold",
    "Function",
    "IncompleteForkError",
    "IncompleteRestoreError",
    "Injectable",
    "JailStatus",
    "Merge",
    "MergeConflictError",
    "NewerCheckpointError",
    "NotDurableError",
    "Notice",
    "ObjectReference",
    "PythonRuntime",
    "Rollback",
    "SnapshotInfo",
    "Span",
    "StoreBusyError",
    "StoreFailedError",
    "StoreTakenError",
    "Type",
    "Variable",
    "VariableInfo",
    "verify",
]
