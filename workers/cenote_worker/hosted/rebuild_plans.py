"""What is kept with a checkpoint so that what it cannot have comes back: which steps to run again, and a record."""

from __future__ import annotations

from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.rebuild import NOTHING_REBUILT, Rebuild
from cenote_worker.checkpoints.state import Part, State
from cenote_worker.checkpoints.writer import Draft
from cenote_worker.history.history import History
from cenote_worker.rebuilding.line import Line
from cenote_worker.rebuilding.line_record import MAX_LINE, LineWriter
from cenote_worker.rebuilding.plan import rebuild_of


class RebuildPlans:
    """Of one runtime's checkpoints."""

    def __init__(self, policy: SandboxPolicy, history: History) -> None:
        self._reaches_out = reaches_out(policy)
        self._history = history
        self._writer = LineWriter()
        self.earlier: Line | None = None
        """That led to the state which the runtime began with here, where that had to be recorded."""

    def plan(self, state: State, head: int, draft: Draft) -> tuple[Rebuild, Part | None]:
        """head: the step whose end the state is. The record, if there is one, is in the draft. Raises OSError."""
        lost = {thing.name for thing in state.unkept} & set(state.message.names)
        if not lost:
            return NOTHING_REBUILT, None
        if head not in self._history.tree:
            return _refused(lost, f"there is no record of step {head}"), None
        rebuild = rebuild_of(state, line := self._line(head), reaches_out=self._reaches_out)
        if not rebuild.steps:
            return rebuild, None
        record = self._writer.write(line)
        if len(record) > MAX_LINE:
            return _refused(lost, f"the record of its steps has more than {MAX_LINE} bytes"), None
        return rebuild, draft.add_part(record)

    def _line(self, head: int) -> Line:
        line = Line(self._history.begun, tuple(self._history.tree.line(head)))
        return line if self.earlier is None else line.behind(self.earlier)


def reaches_out(policy: SandboxPolicy) -> bool:
    """Whether a runtime may change something outside itself."""
    return policy.network != "none" or any(mount.writable for mount in policy.mounts)


def _refused(names: set[str], reason: str) -> Rebuild:
    return Rebuild(refused=dict.fromkeys(sorted(names), reason))
