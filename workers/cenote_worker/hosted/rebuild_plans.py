"""How what a copied state cannot have comes back: which steps to run again, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.rebuild import NOTHING_REBUILT, Rebuild
from cenote_worker.checkpoints.state import Part, State
from cenote_worker.checkpoints.writer import Draft
from cenote_worker.history.step import START
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.rebuilding.line import Line
from cenote_worker.rebuilding.line_record import MAX_LINE, LineWriter
from cenote_worker.rebuilding.plan import rebuild_of


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """line: that led to the state; None where nothing is rebuilt. injected: names that the steps find as at first."""

    rebuild: Rebuild
    line: Line | None
    injected: frozenset[str] = frozenset()


def plan_of(runtime: HostedRuntime, state: State, head: int, *, beside: bool = False) -> RebuildPlan:
    """For a state of this runtime. head: the step whose end it is. beside: the jail has the same injected values."""
    lost = {thing.name for thing in state.unkept} & set(state.message.names)
    if not lost:
        return RebuildPlan(NOTHING_REBUILT, None)
    if head not in runtime.history.tree:
        return RebuildPlan(_refused(lost, f"there is no record of step {head}"), None)
    line = _line(runtime, head)
    injected = _put_in_at_first(runtime) if beside else frozenset[str]()
    rebuild = rebuild_of(state, line, reaches_out=reaches_out(runtime.policy), injected=injected)
    return RebuildPlan(rebuild, line if rebuild.steps else None, injected)


def _put_in_at_first(runtime: HostedRuntime) -> frozenset[str]:
    """Names of what is kept of it. Where the history began in another process, nobody knows what was put in there."""
    if runtime.earlier is not None:
        return frozenset()
    noted = [each for each in runtime.noted.all() if not each.seat.private]
    later = {name for each in noted if each.step != START for name in each.names}
    return frozenset(name for each in noted if each.step == START for name in each.names) - later


class RebuildPlans:
    """Of one runtime's checkpoints, each with the record that it needs."""

    def __init__(self, runtime: HostedRuntime) -> None:
        self._runtime = runtime
        self._writer = LineWriter()

    def plan(self, state: State, head: int, draft: Draft) -> tuple[Rebuild, Part | None]:
        """See `plan_of`. The record, if there is one, is in the draft. Raises OSError."""
        plan = plan_of(self._runtime, state, head)
        if plan.line is None:
            return plan.rebuild, None
        record = self._writer.write(plan.line)
        if len(record) > MAX_LINE:
            lost = {thing.name for thing in state.unkept} & set(state.message.names)
            return _refused(lost, f"the record of its steps has more than {MAX_LINE} bytes"), None
        return plan.rebuild, draft.add_part(record)


def _line(runtime: HostedRuntime, head: int) -> Line:
    line = Line(runtime.history.begun, tuple(runtime.history.tree.line(head)))
    return line if runtime.earlier is None else line.behind(runtime.earlier)


def reaches_out(policy: SandboxPolicy) -> bool:
    """Whether a runtime may change something outside itself."""
    return policy.network != "none" or any(mount.writable for mount in policy.mounts)


def _refused(names: set[str], reason: str) -> Rebuild:
    return Rebuild(refused=dict.fromkeys(sorted(names), reason))
