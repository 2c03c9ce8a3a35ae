"""Puts a stored or copied state into a fresh jail, and rebuilds what the state cannot contain.

The steps to run again are planned when the state is taken, and stored with it: what they did, not what they showed.
They are run in the jail that is being filled, before anything else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_security.errors import MalformedValueError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.restoring import Piece, Restoration
from cenote_worker.checkpoints.state import NOTHING_REBUILT, Rebuild, State, StoredPart
from cenote_worker.checkpoints.writer import CheckpointDraft
from cenote_worker.execution.trace import ABSENT, Location, Version, name
from cenote_worker.history.events import InitialNames
from cenote_worker.history.messages import from_event, to_event
from cenote_worker.history.step import START, StepRecord
from cenote_worker.process.metrics import RERUN
from cenote_worker.record.lineage import (
    DRAWN,
    CannotRebuildError,
    Lineage,
    check_repeatable,
    files_outside,
    not_drawn,
)
from cenote_worker.record.rebuild_plan import rebuild_of
from cenote_worker.runtime.jail_requests import STATE_TIMEOUT
from cenote_worker.runtime.replay import HostCallReplay
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.transfer import put, told
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content

MAX_LINEAGE: Final = 64 * 2**20
"""Bytes of a line that can be stored. Its new part is written with each checkpoint that has something to rebuild."""


class LineageWriter:
    """Writes lines of one history, each mostly the one before and one more step."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[StepRecord, bytes]] = {}

    def write(self, line: Lineage) -> bytes:
        """Equal beginnings have equal bytes."""
        events = [from_event(InitialNames(names=line.begun)), *map(self._event, line.steps)]
        return checkpoint_pb2.RecordedLine(events=events).SerializeToString()

    def _event(self, record: StepRecord) -> bytes:
        known = self._written.get(record.number)
        if known is None or known[0] is not record:
            known = self._written[record.number] = record, from_event(_bare(record))
        return known[1]


def read_lineage(data: bytes) -> Lineage:
    """Raises MalformedValueError."""
    try:
        begun, *steps = map(to_event, checkpoint_pb2.RecordedLine.FromString(data).events)
    except (DecodeError, ValueError):
        raise MalformedValueError("the steps that are kept with a state cannot be read") from None
    if not isinstance(begun, InitialNames) or not _are_steps(steps):
        raise MalformedValueError("what is kept with a state is no line of steps")
    return Lineage(begun.names, tuple(each for each in steps if isinstance(each, StepRecord)))


def _are_steps(events: Iterable[object]) -> bool:
    return all(isinstance(each, StepRecord) for each in events)


def _bare(record: StepRecord) -> StepRecord:
    """The record without its output."""
    error = replace(record.error, message="", traceback="") if record.error is not None else None
    return replace(record, stdout="", stderr="", value=None, outputs=(), reply=None, error=error)


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """line: that led to the state; None where nothing is rebuilt. injected: names that the steps find as at first."""

    rebuild: Rebuild
    line: Lineage | None
    injected: frozenset[str] = frozenset()


def plan_of(runtime: HostedRuntime, state: State, head: int, *, beside: bool = False) -> RebuildPlan:
    """For a state of this runtime. head: the step whose end it is. beside: the jail has the same injected values."""
    lost = state.names_to_rebuild()
    if not lost:
        return RebuildPlan(NOTHING_REBUILT, None)
    if head not in runtime.history.tree:
        return RebuildPlan(_refused(lost, f"there is no record of step {head}"), None)
    line = _line(runtime, head)
    injected = _put_in_at_first(runtime) if beside else frozenset[str]()
    rebuild = rebuild_of(state, line, reaches_out=reaches_out(runtime.policy), injected=injected)
    return RebuildPlan(rebuild, line if rebuild.steps else None, injected)


def _put_in_at_first(runtime: HostedRuntime) -> frozenset[str]:
    """Names of initial injections that are still stored; empty where another process began the history."""
    if runtime.earlier is not None:
        return frozenset()
    noted = [each for each in runtime.noted.all() if not each.seat.private]
    later = {name for each in noted if each.step != START for name in each.names}
    return frozenset(name for each in noted if each.step == START for name in each.names) - later


class RebuildPlans:
    """Rebuild plans for one runtime's checkpoints, each with the record that it needs."""

    def __init__(self, runtime: HostedRuntime) -> None:
        self._runtime = runtime
        self._writer = LineageWriter()

    def plan(self, state: State, head: int, draft: CheckpointDraft) -> tuple[Rebuild, StoredPart | None]:
        """See `plan_of`. The record, if there is one, is in the draft. Raises OSError."""
        plan = plan_of(self._runtime, state, head)
        if plan.line is None:
            return plan.rebuild, None
        record = self._writer.write(plan.line)
        if len(record) > MAX_LINEAGE:
            return _refused(
                state.names_to_rebuild(), f"the record of its steps has more than {MAX_LINEAGE} bytes"
            ), None
        return plan.rebuild, draft.add_part(record)


def _line(runtime: HostedRuntime, head: int) -> Lineage:
    line = Lineage(runtime.history.begun, tuple(runtime.history.tree.line(head)))
    return line if runtime.earlier is None else line.behind(runtime.earlier)


def reaches_out(policy: SandboxPolicy) -> bool:
    """Whether a runtime may change something outside itself."""
    return policy.network != "none" or any(mount.writable for mount in policy.mounts)


def _refused(names: Iterable[str], reason: str) -> Rebuild:
    return Rebuild(refused=dict.fromkeys(sorted(names), reason))


SLOWER: Final = 10.0
"""A repeated step may take this many times as long as before, besides the time that any request may take."""


class StateRebuild:
    """The rebuild of one state. The inputs of the steps are in that jail already; all other parts come after them."""

    def __init__(
        self,
        runtime: HostedRuntime,
        supervisor: Supervisor,
        rebuild: Rebuild,
        hosts: Iterable[str],
        patience: Callable[[], float] | None = None,
        injected: Iterable[str] = (),
    ) -> None:
        """hosts: names that stand for objects of the client. patience: seconds that are left for all of it.

        injected: names of the jail's injected values, which the steps use as they are.
        """
        self._runtime = runtime
        self._supervisor = supervisor
        self._rebuild = rebuild
        self._hosts = frozenset(hosts)
        self._patience = patience
        self._injected = sorted(injected)

    def carry_out(self, line: Lineage) -> str:
        """The reason why nothing was rebuilt; empty once the variables are there. Raises UnavailableError."""
        try:
            reason = self._run(self._rebuild, line) or self._end(self._rebuild.names)
        except CannotRebuildError as error:
            reason = str(error)
        if reason:
            self.give_up()
        self._runtime.recorder.host_calls.take()  # they are in the record already
        return reason

    def give_up(self) -> None:
        """Ends the rebuild without its variables, so that all other parts can be put. Raises UnavailableError."""
        self._end(())

    def _run(self, rebuild: Rebuild, line: Lineage) -> str:
        records = {record.number: record for record in line.steps}
        steps = [records[number] for number in rebuild.steps if number in records]
        if len(steps) < len(rebuild.steps):
            return "not all of the steps that make it are recorded"
        for record in steps:  # the policy may have changed
            check_repeatable(record, self._hosts, reaches_out=reaches_out(self._runtime.policy))
        if reason := self._tell(jail_pb2.RestorePiece.REBUILD, self._beginning(rebuild, line)):
            return reason
        return next(filter(None, (self._repeat(step, rebuild) for step in steps)), "")

    def _beginning(self, rebuild: Rebuild, line: Lineage) -> checkpoint_pb2.RebuildBegin:
        """The imports of a step that is not run again are repeated all the same: later ones may rely on them."""
        before = line.until(rebuild.steps[-1]) or line
        others = [each for each in before.steps if each.number not in rebuild.steps]
        modules = dict.fromkeys(
            name for each in others if each.trace is not None for name in each.trace.modules
        )
        return make(
            checkpoint_pb2.RebuildBegin,
            names=sorted(rebuild.given_of("name")),
            states=sorted(rebuild.given_of("hidden")),
            modules=modules,
            injected=self._injected,
        )

    def _repeat(self, record: StepRecord, rebuild: Rebuild) -> str:
        replay = HostCallReplay(record.host_calls, tentative=True, alone=True)
        self._runtime.recorder.counts.add(RERUN)
        self._runtime.replays.begin(replay, lambda: None)
        try:
            timeout = STATE_TIMEOUT + SLOWER * record.duration
            reason = self._tell(jail_pb2.RestorePiece.REPEAT, _repeated(record, rebuild), timeout)
        finally:
            self._runtime.replays.end()
        if replay.stopped is not None:
            target = replay.stopped.target
            return f"step {record.number} calls {target} outside in a way that the record does not answer"
        return reason

    def _end(self, names: tuple[str, ...]) -> str:
        return self._tell(jail_pb2.RestorePiece.REBUILT, make(checkpoint_pb2.RebuildEnd, names=names))

    def _tell(
        self,
        kind: jail_pb2.RestorePiece.Kind.ValueType,
        message: checkpoint_pb2.RebuildBegin | checkpoint_pb2.RepeatedStep | checkpoint_pb2.RebuildEnd,
        timeout: float = STATE_TIMEOUT,
    ) -> str:
        if self._patience is not None:
            timeout = min(timeout, self._patience())
        content = Content.pack([message.SerializeToString()])
        try:
            return told(self._supervisor, Piece(kind, content, ()), timeout=timeout)
        finally:
            content.close()


def _repeated(record: StepRecord, rebuild: Rebuild) -> checkpoint_pb2.RepeatedStep:
    code = record.code if record.kind == "cell" else "\n".join(f"del {each}" for each in record.names)
    message = checkpoint_pb2.RepeatedStep(step=record.number, code=code.encode("utf-8", "surrogatepass"))
    if record.error is not None:
        message.error = utf8_text(record.error.type)
    if record.trace is not None:
        outside, made = files_outside(record), {*map(name, rebuild.names), *(DRAWN - not_drawn(record))}
        message.found.extend(_seen({each: record.trace.reads[each] for each in outside}))
        message.left.extend(_seen({each: seen for each, seen in record.trace.writes.items() if each in made}))
    return message


def _seen(versions: Mapping[Location, Version]) -> list[jail_pb2.Seen]:
    """The versions that identify a value."""
    known = {each: seen for each, seen in versions.items() if seen != ABSENT and not seen.startswith("?")}
    return [make(jail_pb2.Seen, location=each, version=version) for each, version in known.items()]


class StateRestore:
    """Fills one jail of a runtime with one state, which the caller owns.

    partial: parts that cannot be restored may be left out. line: once it is done, the steps that led to the state,
    where some had to be run again.
    """

    def __init__(self, runtime: HostedRuntime, ready: Restoration, name: str, *, partial: bool) -> None:
        """name: of the runtime in its store."""
        self._runtime = runtime
        self._ready = ready
        self._name = name
        self._partial = partial
        self.line: Lineage | None = None
        self.differing: tuple[str, ...] = ()
        """Once it is done: the differences from the stored state, a line each."""
        self.missing = ready.damage
        """What of it could not be read or restored, a line each."""

    def carry_out(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        """inject: see StateSource.fill. Raises IncompleteRestoreError, UnavailableError."""
        self._put_all(supervisor, self._ready.lent)
        inject()
        self._put_all(supervisor, self._ready.given)
        if self._ready.record:
            self._rebuild(supervisor)
        self._put_all(supervisor, self._ready.pieces)

    def _put_all(self, supervisor: Supervisor, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            try:
                number = self._ready.manifest.number
                self.differing += put(supervisor, piece, self._name, number, partial=self._partial)
            except IncompleteRestoreError as error:
                if not self._partial:
                    raise
                self.missing += error.missing

    def _rebuild(self, supervisor: Supervisor) -> None:
        manifest = self._ready.manifest
        rebuilding = StateRebuild(self._runtime, supervisor, manifest.rebuild, manifest.state.message.hosts)
        try:
            self.line = read_lineage(self._ready.record)
            reason = rebuilding.carry_out(self.line)
        except MalformedValueError as error:
            reason = str(error)
            rebuilding.give_up()
        if reason:
            lost = (f"{', '.join(manifest.rebuild.names)}: {reason}",)
            if not self._partial:
                raise IncompleteRestoreError(self._name, manifest.number, lost)
            self.missing += lost
