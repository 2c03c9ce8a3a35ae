"""Runtimes that begin with something that is there: forks of a state, further authors of a runtime, stored
runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from cenote.runtime.core.arguments import KeptState, Scope, check_scope, key_of
from cenote.runtime.core.auditing import auditor_of
from cenote.runtime.core.backend import ForkingBackend, ServedBranch
from cenote.runtime.core.backends import Storage, backend_at
from cenote.runtime.core.listeners import BlockingListener
from cenote.runtime.core.replies import variables
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.inject.host_function_server import HostFunctionServer, LocalHostHandler
from cenote.runtime.inject.injectables import Function, Type, Variable
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.rules import SecurityChecker
from cenote_worker.history.events import check_author
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import (
    ForkOrder,
    StateCopy,
    branch_names,
    carried_out,
    check_count,
    copied,
)

Several: TypeAlias = Literal[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
"""Counts of branches that a type checker knows to give a list. It has no word for "from two on", so for an int that
it cannot see the value of, both are possible."""


def fork(
    core: RuntimeCore,
    step: KeptState | None,
    count: int,
    *,
    deterministic: bool,
    partial: bool,
    name: str | None = None,
) -> list[RuntimeCore]:
    """So many running branches; see PythonRuntime.fork. Blocks."""
    check_count(count)
    at = None if step is None else key_of(step)
    order = ForkOrder(at=at, deterministic=deterministic, partial=partial)
    backend, names = core.backend, branch_names(name, count)
    if isinstance(backend, HostedRuntime):
        return _forked_here(core, backend, order, names or [core.name] * count)
    if isinstance(backend, ForkingBackend):
        _wait_for_cells(core)
        return [_held(core, branch) for branch in backend.fork(order, count, names)]
    raise UsageError("only the owner of a runtime forks it, not an author who is attached")


def _forked_here(
    core: RuntimeCore, source: HostedRuntime, order: ForkOrder, names: Sequence[str | None]
) -> list[RuntimeCore]:
    if order.at is not None:
        _wait_for_cells(core)
    made: list[RuntimeCore] = []
    with copied(source, order) as copy:
        try:
            made += [_branch(core, copy, name) for name in names]
            carried_out([branch.start for branch in made])
        except BaseException:
            for branch in made:
                branch.close()
            raise
    return made


def _branch(core: RuntimeCore, copy: StateCopy, name: str | None) -> RuntimeCore:
    def place(_policy: SandboxPolicy, desk: HostFunctionServer) -> HostedRuntime:
        return copy.runtime(LocalHostHandler(desk), name=name or "")

    branch = core.branch(place, name)
    branch.origin = copy.point
    return branch


def _held(core: RuntimeCore, there: ServedBranch) -> RuntimeCore:
    branch = core.branch(lambda _policy, desk: there.open(desk), there.name)
    branch.origin = there.point
    return branch


def _wait_for_cells(core: RuntimeCore) -> None:
    """Waits until earlier cells are over. The fork itself must not wait for them: it holds a machine's turn."""
    described = BlockingListener()
    core.describe(described)
    variables(described.wait(core.resume))


class AttachedCore(RuntimeCore):
    """A RuntimeCore for one more author. Closing it detaches the author; the runtime and the names stay."""

    def __init__(self, core: RuntimeCore, author: str, scope: Scope, holder: object) -> None:
        """holder: who closes the runtime when it is forgotten, which must not happen while this is in use."""
        check_author(author)
        check_scope(scope)
        # One client: policy, classes and host functions are the same for all. What differs follows.
        vars(self).update(vars(core))
        self.author, self.scope = author, scope
        self.backend = core.backend.attach(author, private=scope == "private")
        self._holder = holder
        if scope == "private":
            names = core.names_of(author)
            self.items, self._rules = names.items, names.rules
            self._prefix = f"{author}/"

    def reset(self) -> None:
        """Raises UsageError: others hold the runtime too."""
        self.backend.reset()

    def close(self) -> None:
        self.backend.close()


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
