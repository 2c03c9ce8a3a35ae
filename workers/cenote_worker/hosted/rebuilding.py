"""Has a jail that is being filled run steps again, for what a copied state cannot have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.checkpoints.rebuild import Rebuild
from cenote_worker.checkpoints.restoring import Piece
from cenote_worker.content import Content
from cenote_worker.counts import RERUN
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.asks import STATE_TIMEOUT
from cenote_worker.hosted.rebuild_plans import reaches_out
from cenote_worker.hosted.replays import Replay
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.state_transfer import told
from cenote_worker.rebuilding.line import Line
from cenote_worker.rebuilding.obstacles import (
    DRAWN,
    CannotRebuildError,
    check_repeatable,
    files_outside,
    not_drawn,
)
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.trace import ABSENT, Location, Version, name

SLOWER: Final = 10.0
"""How many times as long as the first time a step may take, besides the time that any request may take."""


class Rebuilding:
    """Of one state. What the steps find has been put into that jail; all else comes after them."""

    def __init__(
        self,
        runtime: HostedRuntime,
        supervisor: Supervisor,
        rebuild: Rebuild,
        hosts: Iterable[str],
        patience: Callable[[], float] | None = None,
        injected: Iterable[str] = (),
    ) -> None:
        """hosts: names that stand for something of the client. patience: seconds that are left for all of it.

        injected: names of what that jail was given, which the steps find as it is.
        """
        self._runtime = runtime
        self._supervisor = supervisor
        self._rebuild = rebuild
        self._hosts = frozenset(hosts)
        self._patience = patience
        self._injected = sorted(injected)

    def carry_out(self, line: Line) -> str:
        """Why nothing comes of it; empty once the variables are there. Raises UnavailableError."""
        try:
            reason = self._run(self._rebuild, line) or self._end(self._rebuild.names)
        except CannotRebuildError as error:
            reason = str(error)
        if reason:
            self.give_up()
        self._runtime.recorder.host_calls.take()  # they are in the record already
        return reason

    def give_up(self) -> None:
        """All else comes now, and what was to be made again does not. Raises UnavailableError."""
        self._end(())

    def _run(self, rebuild: Rebuild, line: Line) -> str:
        records = {record.number: record for record in line.steps}
        steps = [records[number] for number in rebuild.steps if number in records]
        if len(steps) < len(rebuild.steps):
            return "not all of the steps that make it are recorded"
        for record in steps:  # the policy may be another one by now
            check_repeatable(record, self._hosts, reaches_out=reaches_out(self._runtime.policy))
        if reason := self._tell(jail_pb2.RestorePiece.REBUILD, self._beginning(rebuild, line)):
            return reason
        return next(filter(None, (self._repeat(step, rebuild) for step in steps)), "")

    def _beginning(self, rebuild: Rebuild, line: Line) -> checkpoint_pb2.RebuildBegin:
        """A step that is not run again has its imports all the same: later ones may rely on them."""
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
        replay = Replay(record.host_calls, tentative=True, alone=True)
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
    """Those that say what was there."""
    known = {each: seen for each, seen in versions.items() if seen != ABSENT and not seen.startswith("?")}
    return [make(jail_pb2.Seen, location=each, version=version) for each, version in known.items()]
