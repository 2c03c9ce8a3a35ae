"""Forks: further runtimes that begin with the state of one, or with a state that one has kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from cenote.runtime.branch_line import BranchLine, BranchThere
from cenote.runtime.core import RuntimeCore
from cenote.runtime.host_desk import HostDesk, LineDesk
from cenote.runtime.kept_states import KeptState, key_of
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import variables
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.hosted.branching import (
    ForkOrder,
    StateCopy,
    branch_names,
    carried_out,
    check_count,
    copied,
)
from cenote_worker.hosted.runtime import HostedRuntime

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
    if isinstance(backend, BranchLine):
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
    def place(_policy: SandboxPolicy, desk: HostDesk) -> HostedRuntime:
        return copy.runtime(LineDesk(desk), name=name or "")

    branch = core.branch(place, name)
    branch.origin = copy.point
    return branch


def _held(core: RuntimeCore, there: BranchThere) -> RuntimeCore:
    branch = core.branch(lambda _policy, desk: there.open(desk), there.name)
    branch.origin = there.point
    return branch


def _wait_for_cells(core: RuntimeCore) -> None:
    """Those that were sent before are over; whoever forks is not to wait for them, with a machine's turn in hand."""
    described = BlockingListener()
    core.describe(described)
    variables(described.wait(core.resume))
