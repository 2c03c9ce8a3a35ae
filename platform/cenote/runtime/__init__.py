"""Runtimes: persistent Python namespaces in jails, and what goes into and comes out of them."""

from __future__ import annotations

from cenote.runtime.asynchronous import AsyncPythonRuntime
from cenote.runtime.files import AsyncFiles, Files
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.references import ObjectReference
from cenote.runtime.sync import PythonRuntime
from cenote_worker.egress.ledger import Decision
from cenote_worker.results import (
    CellUsage,
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    FolderListing,
    JailStatus,
    Notice,
    Span,
    VariableInfo,
)

__all__ = [
    "AsyncFiles",
    "AsyncPythonRuntime",
    "CellUsage",
    "Decision",
    "ErrorInfo",
    "ExecutionResult",
    "FileInfo",
    "Files",
    "FolderListing",
    "Function",
    "Injectable",
    "JailStatus",
    "Notice",
    "ObjectReference",
    "PythonRuntime",
    "Span",
    "Type",
    "Variable",
    "VariableInfo",
]
