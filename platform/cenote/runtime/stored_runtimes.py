"""Runtimes that begin with what a store of this client's has of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cenote.runtime.auditing import auditor_of
from cenote.runtime.backends import backend_at
from cenote.runtime.core import RuntimeCore
from cenote.runtime.injectables import Function, Type, Variable
from cenote.runtime.storage import Storage
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import SecurityChecker


def stored_runtime(
    kept: Storage,
    name: str,
    functions: Sequence[Function],
    variables: Sequence[Variable],
    types: Sequence[Type],
    security_checker: SecurityChecker | None,
    sandbox: SandboxPolicy | None,
    history: str | Path | None,
    audit_patches: float,
) -> RuntimeCore:
    """Always on this machine, whatever CENOTE_ADDRESS says: a platform has a store of its own."""
    policy, auditor = SandboxPolicy() if sandbox is None else sandbox, auditor_of(audit_patches)
    place, _ = backend_at("embedded", None, history, name)
    return RuntimeCore(functions, variables, types, security_checker, policy, name, place, kept, auditor)
