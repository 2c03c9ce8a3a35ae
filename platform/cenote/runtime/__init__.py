"""Runtimes: persistent Python namespaces in jails, and what goes into and comes out of them."""

from __future__ import annotations

from cenote.runtime.asynchronous import AsyncPythonRuntime
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.references import ObjectReference
from cenote.runtime.sync import PythonRuntime
from cenote_worker.results import ErrorInfo, ExecutionResult, JailStatus, Span, VariableInfo

__all__ = [
    "AsyncPythonRuntime",
    "ErrorInfo",
    "ExecutionResult",
    "Function",
    "Injectable",
    "JailStatus",
    "ObjectReference",
    "PythonRuntime",
    "Span",
    "Type",
    "Variable",
    "VariableInfo",
]
