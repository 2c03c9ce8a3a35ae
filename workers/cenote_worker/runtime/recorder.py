"""Records the outcomes of a runtime's requests before the caller gets them.

Each listener here passes on the events of a request, and does one more thing: it records the outcome, or changes it,
or waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from queue import SimpleQueue
from typing import Final, Protocol

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import JailLostError
from cenote_worker.execution.results import CellUsage, ErrorInfo, ExecutionResult, Rollback, StreamName
from cenote_worker.history.bounds import MAX_BEGUN_FILES
from cenote_worker.history.events import EnvironmentUsed, ValuesInjected
from cenote_worker.history.history import History
from cenote_worker.history.host_calls import HostCallNotes
from cenote_worker.history.step import START, HostCallRecord, StepRecord, StepStatus
from cenote_worker.process.metrics import (
    CELL_OVERHEAD,
    CELL_SECONDS,
    CELLS,
    HOST_CALLS,
    KILL_REASONS,
    KILLS,
    RERUN,
    ROLLBACK_SECONDS,
    ROLLBACKS,
    Counts,
)
from cenote_worker.runtime.injection import in_place
from cenote_worker.runtime.jail_requests import ClientChange
from cenote_worker.supervisor.frame_parser import (
    DoneReply,
    FileReply,
    RefusedReply,
    ValueReply,
    VariablesReply,
)
from cenote_worker.supervisor.requests import AuthorSession, Listener, Outcome, SharedReply
from cenote_worker.transport.content import HeldHere

Note = Callable[[Outcome], None]
"""Is called with the outcome of a request."""


class UsageEntry(Protocol):
    """The usage entry of a cell on its platform. token: id of the token that the cell comes with."""

    token: str

    def admit(self) -> None:
        """Called before the cell is queued, once for each cell that was not sent before. Raises an error when nothing
        may run.
        """

    def ended(self, outcome: Outcome) -> None:
        """The jail is done with the cell. Called before any processing of the outcome that may fail."""


Admission = Callable[[str], AbstractContextManager[UsageEntry | None]]
"""Makes the usage entry of a cell with this code, around its queueing; None where usage is not recorded."""


def admit_all(_code: str) -> AbstractContextManager[None]:
    """An Admission."""
    return nullcontext()


class RecordingListener:
    """Passes events on; notes the outcome first. The listener gets it even if noting it fails."""

    def __init__(self, listener: Listener, note: Note) -> None:
        self._listener = listener
        self._note = note

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        try:
            self._note(outcome)
        finally:
            self._listener.done(outcome)


class LossListener:
    """Passes events on; calls `lost` before its listener learns that the jail is gone."""

    def __init__(self, listener: Listener, lost: Callable[[], None]) -> None:
        self._listener = listener
        self._lost = lost

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, JailLostError) or (
            isinstance(outcome, ExecutionResult) and outcome.state == "lost"
        ):
            self._lost()
        self._listener.done(outcome)


class InjectionListener:
    """Notes the success or failure of an injection before its caller gets it."""

    def __init__(self, listener: Listener, keep: Callable[[], None], release: Callable[[], None]) -> None:
        self._listener = listener
        self._keep = keep
        self._release = release

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Exception | RefusedReply):
            self._keep()
        else:
            self._release()
        self._listener.done(outcome)


class DeletionListener:
    """Makes a deletion succeed, too, where only later jails would have the injected name: a cell has deleted it."""

    def __init__(self, listener: Listener, withdraw: Callable[[], bool]) -> None:
        self._listener = listener
        self._withdraw = withdraw

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        is_missing = isinstance(outcome, RefusedReply) and outcome.kind == jail_pb2.Refusal.UNKNOWN_NAME
        self._listener.done(DoneReply() if is_missing and self._withdraw() else outcome)


class SharingListener:
    """Turns a fetched value into one that the listener may pass on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, ValueReply):
            outcome = SharedReply(HeldHere(outcome.content), outcome.info)
        self._listener.done(outcome)


class WaitingListener:
    """Waits for an injection into a jail that is being filled."""

    def __init__(self) -> None:
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        self.outcomes.put(outcome)


class DiscardingListener:
    """The listener of a request whose caller has gone. Closes the outcome's content."""

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, ValueReply | FileReply):
            outcome.content.close()


Record = Callable[[Listener], Listener]
"""Wraps a listener, so that the outcome of its request is recorded before the listener gets it."""


_NO_KILLS: Final = ("exception", "interrupt", "policy", "closed", "reset", "hibernated")


def unrecorded(listener: Listener) -> Listener:
    """The Record of a request that changes nothing."""
    return listener


class StepRecorder:
    """Of one runtime. Listeners of requests are called in the order in which their jail has carried them out."""

    def __init__(self, history: History, counts: Counts | None = None) -> None:
        """counts: of its process; by default of this runtime alone."""
        self.history = history
        self.counts = counts or Counts()
        self.host_calls = HostCallNotes()

    # -- requests, on their way to their listeners --

    def cell(self, listener: Listener, asked: StepRecord) -> Listener:
        """asked: what is known of the step before it runs."""

        def note(outcome: Outcome) -> None:
            if isinstance(outcome, ExecutionResult):
                self._ran(asked, outcome)

        return RecordingListener(listener, note)

    def rollback(self, listener: Listener) -> Listener:
        began = time.monotonic()

        def note(outcome: Outcome) -> None:
            if isinstance(outcome, Rollback):
                self._back_at(outcome.step, "rollback")
                self.counts.add(ROLLBACKS)
                self.counts.observe(ROLLBACK_SECONDS, time.monotonic() - began)

        return RecordingListener(listener, note)

    def change(self, listener: Listener, change: ClientChange) -> Listener:
        def note(outcome: Outcome) -> None:
            if isinstance(outcome, DoneReply):
                self._changed(replace(change, along=outcome.along, found=outcome.found))

        return RecordingListener(listener, note)

    def process(self, listener: Listener, asked: StepRecord) -> Listener:
        """asked: the finished program's step. It is recorded once the jail knows that its files may have changed."""

        def note(outcome: Outcome) -> None:
            if isinstance(outcome, DoneReply):
                self.history.ended(asked)

        return RecordingListener(listener, note)

    def description(self, listener: Listener, seat: AuthorSession) -> Listener:
        """Records the common names only: a private namespace is its author's business."""
        if seat.private:
            return listener

        def note(outcome: Outcome) -> None:
            if isinstance(outcome, VariablesReply):
                self.history.described(outcome.variables)

        return RecordingListener(listener, note)

    # -- events --

    def _ran(self, asked: StepRecord, result: ExecutionResult) -> None:
        """A cell has a result, whether or not it ran."""
        calls, dropped = self.host_calls.take()
        status = _status(result)
        self.history.ended(
            asked,
            number=result.step,
            status=status,
            stdout=result.stdout,
            stderr=result.stderr,
            value=result.value,
            outputs=result.outputs,
            error=result.error,
            reply=result.reply,
            trace=result.trace,
            host_calls=calls,
            dropped_calls=dropped,
            started=time.time() - result.usage.wall,
            duration=result.duration,
            usage=result.usage,
            kept_as=result.kept_as,
        )
        if result.state == "rolled_back" and result.back_at is not None:
            self._back_at(result.back_at, result.error.reason if result.error is not None else "")
        self._count(asked, result, status, calls, dropped)

    def _count(
        self,
        asked: StepRecord,
        result: ExecutionResult,
        status: StepStatus,
        calls: Sequence[HostCallRecord],
        dropped: int,
    ) -> None:
        counts = self.counts
        counts.add(CELLS, status)
        if status == "refused":
            return
        counts.observe(CELL_SECONDS, result.duration)
        counts.observe(CELL_OVERHEAD, max(result.usage.wall - result.duration, 0.0))
        if asked.origin != START:
            counts.add(RERUN)
        if result.error is not None and (reason := _kill_reason(result.error)):
            counts.add(KILLS, reason)
        for call in calls:
            counts.add(HOST_CALLS, call.effect)
        if dropped:
            counts.add(HOST_CALLS, "unrecorded", by=dropped)

    def _back_at(self, step: int, reason: str) -> None:
        """A jail reports its step, which may not exist."""
        if step in self.history.tree:
            self.history.moved(step, reason)

    def refilled(
        self, values: Sequence[ValuesInjected], step: int = START, arrival: str = "a fresh jail"
    ) -> None:
        """There is a fresh jail, which begins with these values. step: the last one in its state. arrival: how it
        came to that.

        Where there is such a step, the history has begun before, with the values of that time.
        """
        names = dict.fromkeys(name for each in values for name in each.names)
        if step == START:
            self.history.begins_with(names, {}, values)
        elif not self.history.begun:
            self.history.begins_with(names, values=values)
        self.history.moved(step if step in self.history.tree else START, arrival)

    def runs_in(self, environment: EnvironmentUsed) -> None:
        """A jail with these packages was started."""
        self.history.runs_in(environment)

    def goes_on_from(self, step: int) -> None:
        """The state that the next jail begins with is stored, and that step is its last. Later steps may be on
        record: a process that was killed has recorded steps whose state was not stored yet.
        """
        self.history.moved(step if step in self.history.tree else START, "a stored state")

    def began_again(self) -> None:
        """There is a fresh jail, which begins with the start of the history."""
        self.history.moved(START, "a fresh jail")

    def reset(self) -> None:
        self.history.moved(START, "reset")

    def went_unrecorded(self, steps: int) -> None:
        """Another process carried out this many steps; the record of the last ones was lost with it."""
        if steps > self.history.tree.last:
            self.history.ended(StepRecord(number=steps, kind="unrecorded", started=time.time()))

    def _changed(self, change: ClientChange) -> None:
        content = change.put_in.content if change.put_in else self.history.keep_file(change.data)
        if change.number == START:
            self._began_with(change, content)
            return
        self.history.ended(
            StepRecord(
                number=change.number,
                origin=change.stands_for.number if change.stands_for is not None else START,
                kind=change.kind,
                names=change.names,
                content=content,
                author=change.seat.author,
                private=change.seat.private,
                cause=change.cause,
                trace=change.trace(),
                started=time.time(),
            )
        )

    def _began_with(self, change: ClientChange, content: str) -> None:
        """Records a change before the first step, which is a part of the initial state. A name that gets another
        value stays in its place, as in the namespace."""
        if change.kind in ("upload", "removal"):
            self.history.begins_with(self.history.begun, self._begun_files(change, content))
            return
        qualified = [f"{change.seat.author}/{each}" if change.seat.private else each for each in change.names]
        kept = [each for each in self.history.begun if each not in qualified]
        if change.put_in is not None:
            values = in_place(self.history.begun_values, change.put_in, change.put_in.supersedes)
            self.history.begins_with(dict.fromkeys([*self.history.begun, *qualified]), values=values)
        elif change.kind == "deletion":
            there = [each for each in self.history.begun_values if not {*each.names}.isdisjoint(kept)]
            self.history.begins_with(kept, values=there)

    def _begun_files(self, change: ClientChange, content: str) -> Mapping[str, str]:
        """Removed files count as not stored: the other contents of their folders are unknown."""
        files = {**self.history.begun_files, **dict.fromkeys(change.names, content)}
        return files if len(files) <= MAX_BEGUN_FILES else {**self.history.begun_files, "": ""}


def _kill_reason(error: ErrorInfo) -> str:
    """Empty for an end by itself or by its author. The jail influences the text: it is no label."""
    reason = error.reason.partition(" ")[0]
    if reason in _NO_KILLS:
        return ""
    if error.outside:
        return "outside"
    return "signal" if reason == "killed" else reason if reason in KILL_REASONS else "other"


def _status(result: ExecutionResult) -> StepStatus:
    if result.state == "kept":
        return "ok" if result.success else "failed"
    if result.usage == CellUsage():  # nothing ran: the jail had ended before
        return "refused"
    return result.state
