"""The request that a jail works on, what is collected for it until it has an outcome, and the requests that wait.

Output is collected in bounded memory: the beginning and the end are stored, and the middle is dropped. The clock of
a cell says when to interrupt it and when to kill it; the time is an argument. Waiting requests are first come,
first served, except that a query, which changes nothing, does not wait for the cells of other authors.
"""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from cenote_security.errors import CallTimeoutError
from cenote_worker.execution.results import (
    CellUsage,
    ErrorInfo,
    ExecutionResult,
    KeptAs,
    LiveOutput,
    Notice,
    StateAfter,
    StreamName,
)
from cenote_worker.execution.trace import StepTrace
from cenote_worker.execution.transcript import CellTranscript
from cenote_worker.supervisor.account.jail_account import MeasuredUsage
from cenote_worker.supervisor.exit_reason import JailExit, WorkerRestart
from cenote_worker.supervisor.frame_parser import DisplayEvent, ExecutedReply, RefusedReply
from cenote_worker.supervisor.journal_port import PendingRequest
from cenote_worker.supervisor.protocol import CALLS, RequestKind
from cenote_worker.supervisor.reactor import Timer
from cenote_worker.supervisor.requests import AuthorSession, JailRequest, Outcome

_CHUNK = 16 * 1024
"""Characters. Small writes are joined to chunks of this size, or a million lines would cost a million strings."""


class HeadAndTail:
    """Collects text up to `limit` characters; of longer text it stores the first and the last halves of the limit."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = io.StringIO()
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._last = io.StringIO()
        self._last_size = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        room = self._half - self._head_size
        if room > 0:
            self._head.write(text[:room])
            self._head_size += min(room, len(text))
            text = text[room:]
        if text:
            self._add_to_tail(text)

    def skip(self, characters: int) -> None:
        """Accounts for this many characters whose text is not known any more."""
        self._head_size = max(self._head_size, self._half)
        self._dropped += characters

    @property
    def truncated(self) -> bool:
        return self._dropped > 0 or self._excess() > 0

    def text(self) -> str:
        tail = "".join(self._tail) + self._last.getvalue()
        excess = self._excess()
        dropped = self._dropped + excess
        if not dropped:
            return self._head.getvalue() + tail
        return f"{self._head.getvalue()}\n[... {dropped} characters left out ...]\n{tail[excess:]}"

    def _add_to_tail(self, text: str) -> None:
        self._last.write(text)
        self._last_size += len(text)
        if self._last_size < _CHUNK:
            return
        self._tail.append(self._last.getvalue())
        self._tail_size += self._last_size
        self._last, self._last_size = io.StringIO(), 0
        while self._tail_size - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def _excess(self) -> int:
        return max(self._tail_size + self._last_size - self._half, 0)


GRACE = 2.0
"""Seconds between an interrupt and the kill: enough for `finally` blocks, too little to hide in."""

ClockAction = Literal["interrupt", "kill"]


@dataclass(slots=True)
class CellClock:
    """Deadlines of one cell.

    timeout: seconds it may run, None for ever. started: when it began, on any monotonic scale.
    """

    started: float
    timeout: float | None
    grace: float = GRACE
    interrupted_at: float | None = None
    expired: bool = False
    """True from the moment the timeout, rather than a request, caused the interrupt."""

    @property
    def deadline(self) -> float | None:
        """When `due` should be called next; None when there is nothing to wait for."""
        if self.interrupted_at is not None:
            return self.interrupted_at + self.grace
        return None if self.timeout is None else self.started + self.timeout

    def due(self, now: float) -> ClockAction | None:
        """What has to be done now. Returning `interrupt` counts as having interrupted."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        if self.interrupted_at is not None:
            return "kill"
        self.interrupted_at = now
        self.expired = True
        return "interrupt"

    def interrupt(self, now: float) -> None:
        """Records a requested interrupt; a second request does not extend the grace."""
        if self.interrupted_at is None:
            self.interrupted_at = now


MAX_DISPLAYS = 1_000
"""Displayed objects stored per cell."""

MAX_TURNS = 2000
"""Changes between the streams whose order is stored: with more of them, a result does not give the order."""

LIVE = 64 * 1024
"""Characters stored of what a running cell has printed, for those who look on; its result has more of it."""

BACKGROUND = 64 * 1024
"""Characters per stream stored of what is printed between cells."""


class StreamBuffers:
    """Both streams, each as head and tail, created on its first output: most cells print nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streams: dict[StreamName, HeadAndTail] = {}
        self._turns: list[int] = []  # see ExecutionResult.printed_in_turns
        self.size = 0

    def add(self, stream: StreamName, text: str) -> None:
        self.size += len(text)
        self._made(stream).add(text)
        if len(self._turns) > MAX_TURNS:
            return
        if not self._turns:
            self._turns.append(0)
        if len(self._turns) % 2 == (stream == "stderr"):  # the last one is of the other stream
            self._turns.append(0)
        self._turns[-1] += len(text)

    def skip(self, characters: int) -> None:
        """Accounts for this many characters, of an unknown stream, whose text is not known any more."""
        if characters:
            self.size += characters
            self._made("stdout").skip(characters)

    def text(self, stream: StreamName) -> str:
        return self._streams[stream].text() if stream in self._streams else ""

    def clear(self) -> None:
        """Drops the text. Its size still counts."""
        self._streams.clear()

    @property
    def truncated(self) -> bool:
        return any([stream.truncated for stream in self._streams.values()])

    @property
    def in_turns(self) -> tuple[int, ...]:
        """Empty where the order is not known, or where only one stream was used."""
        known = "stderr" in self._streams and len(self._turns) <= MAX_TURNS and not self.truncated
        return tuple(self._turns) if known else ()

    def _made(self, stream: StreamName) -> HeadAndTail:
        if stream not in self._streams:
            self._streams[stream] = HeadAndTail(self._limit)
        return self._streams[stream]


@dataclass(slots=True)
class RunningRequest:
    """The request that a jail works on. room: bytes of displayed objects that can still be stored.

    unkept: why the snapshot of the state before it was dropped. news: see ExecutionResult.
    """

    request: JailRequest
    clock: CellClock
    printed: StreamBuffers
    room: int
    displayed: list[DisplayEvent] = field(default_factory=list)
    timer: Timer | None = None
    unkept: str = ""
    news: tuple[str, ...] = ()
    transcript: CellTranscript = field(default_factory=lambda: CellTranscript(LIVE))

    @classmethod
    def begun(cls, request: JailRequest, now: float, kept: int) -> RunningRequest:
        """For a request that is about to be sent. kept: characters of each stream, and bytes of displayed objects."""
        return cls(request, CellClock(now, request.timeout), StreamBuffers(kept), kept)

    @classmethod
    def taken_up(cls, under: PendingRequest, kept: int) -> RunningRequest:
        """For a request that a former supervisor sent; the caller replays its known output afterwards."""
        request = under.request
        clock = CellClock(
            under.started, request.timeout, interrupted_at=under.interrupted_at, expired=under.expired
        )
        record = cls(request, clock, StreamBuffers(kept), kept)
        record.printed.skip(under.missing)
        record.transcript.skip(under.missing)
        return record

    def output(self, stream: StreamName, text: str) -> bool:
        """Collects it, and gives it to the listener: see Listener."""
        self.printed.add(stream, text)
        self.transcript.add(stream, text)
        return self.request.listener.output(stream, text)

    def live_output(self, after: LiveOutput) -> LiveOutput:
        """What it has printed since that look; all that is stored, if another cell ran then."""
        step = self.request.step
        missed, pieces = self.transcript.after(after.end if after.step == step else 0)
        author, end = self.request.seat.author, self.transcript.end
        return LiveOutput(step=step, author=author, pieces=tuple(pieces), missed=missed, end=end)

    def display(self, event: DisplayEvent) -> None:
        if event.clears:
            self.room += sum(each.size for each in self.displayed)
            self.displayed.clear()
            self.printed.clear()
            return
        place = next((at for at, each in enumerate(self.displayed) if event.id and each.id == event.id), None)
        room = self.room + (0 if place is None else self.displayed[place].size)
        if event.size > room or (place is None and len(self.displayed) == MAX_DISPLAYS):
            return
        self.room = room - event.size
        if place is None:
            self.displayed.append(event)
        else:
            self.displayed[place] = event

    def rearm(self, timer: Timer | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def finished(
        self, reply: ExecutedReply, before: StreamBuffers, spent: MeasuredUsage, now: float
    ) -> ExecutionResult:
        """The result of a cell that ended by itself. before: what was printed since the last one."""
        error = self._timed_out(reply.error) if self.clock.expired else reply.error
        success = reply.success and error is None
        if spent.killed:
            self.printed.add("stderr", f"[{_casualties(spent.killed)}]\n")
            error = _out_of_memory(error, spent.killed)
        usage = self._usage(spent, now)
        return self._result(
            before,
            usage,
            success=success,
            value=reply.value,
            error=error,
            duration=min(
                reply.duration, usage.wall
            ),  # the jail reported it: time limits and budgets depend on it
            reply=reply.reply if success else None,
            notices=reply.notices,
            trace=reply.trace,
            unkept=self.unkept or reply.unkept,
            kept_as="" if self.unkept else reply.kept_as,
            differing=reply.differing,
        )

    def answered(self, outcome: Outcome) -> Outcome:
        """The outcome of a request that is not a cell; an effect of the time limit is reported as such."""
        if not self.clock.expired or not isinstance(outcome, RefusedReply):
            return outcome
        assert self.clock.timeout is not None
        if self.request.ask in CALLS:
            return CallTimeoutError(self.clock.timeout)
        limit = f"it took longer than {self.clock.timeout:g} s and was interrupted"
        return replace(outcome, message=f"{outcome.message}; {limit}")

    def lost(
        self, death: JailExit, before: StreamBuffers, spent: MeasuredUsage, now: float
    ) -> ExecutionResult:
        """The result of a cell whose jail ended with it."""
        return self._result(
            before,
            self._usage(spent, now),
            success=False,
            error=death.as_error(),
            duration=now - self.clock.started,
            state="lost",
        )

    def rolled_back(
        self,
        setback: WorkerRestart,
        severed: tuple[str, ...],
        before: StreamBuffers,
        spent: MeasuredUsage,
        now: float,
    ) -> ExecutionResult:
        """The result of a cell whose worker died with it. severed: see Rollback."""
        return self._result(
            before,
            self._usage(spent, now),
            success=False,
            error=setback.as_error(severed),
            duration=now - self.clock.started,
            state="rolled_back",
            back_at=setback.step,
        )

    def _usage(self, spent: MeasuredUsage, now: float) -> CellUsage:
        return CellUsage(
            wall=now - self.clock.started,
            cpu=spent.cpu,
            peak_memory=spent.peak_memory,
            bytes_written=spent.bytes_written,
            output_bytes=self.printed.size,
        )

    def _result(
        self,
        before: StreamBuffers,
        usage: CellUsage,
        *,
        success: bool,
        error: ErrorInfo | None,
        duration: float,
        value: str | None = None,
        reply: str | None = None,
        state: StateAfter = "kept",
        notices: tuple[Notice, ...] = (),
        trace: StepTrace | None = None,
        unkept: str = "",
        kept_as: KeptAs = "",
        back_at: int | None = None,
        differing: tuple[str, ...] = (),
    ) -> ExecutionResult:
        return ExecutionResult(
            success=success,
            stdout=before.text("stdout") + self.printed.text("stdout"),
            stderr=before.text("stderr") + self.printed.text("stderr"),
            value=value,
            outputs=tuple(each.bundle for each in self.displayed),
            error=error,
            step=self.request.step,
            duration=duration,
            state=state,
            truncated=self.printed.truncated,
            reply=reply,
            usage=usage,
            author=self.request.seat.author,
            notices=notices,
            trace=trace,
            unkept=unkept,
            kept_as=kept_as,
            back_at=back_at,
            printed_in_turns=_in_turns(before, self.printed),
            news=(*self.news, *(f"not as in the state that was copied: {line}" for line in differing)),
        )

    def _timed_out(self, error: ErrorInfo | None) -> ErrorInfo | None:
        """Reports an interrupt that the timeout caused as a timeout."""
        if error is None or error.reason != "interrupt":
            return error
        limit = f"{self.clock.timeout:g} s"
        message = f"the cell ran longer than {limit} and was interrupted"
        if not self.request.message.execute.atomic:
            message += "; what it had assigned by then is kept"
        return ErrorInfo(
            type="TimeoutError",
            message=message,
            traceback=f"{error.traceback}\n\nTimeoutError: {message}" if error.traceback else "",
            span=error.span,
            reason="time",
        )


def _casualties(killed: int) -> str:
    processes = "1 process" if killed == 1 else f"{killed} processes"
    return f"the runtime came to its memory limit, and {processes} that this cell had started were killed"


def _out_of_memory(error: ErrorInfo | None, killed: int) -> ErrorInfo | None:
    """The error of a cell whose children were killed for memory: that is its most likely cause."""
    if error is None or error.reason != "exception":
        return error
    message = f"{error.message}; {_casualties(killed)}"
    traceback = f"{error.traceback}\n{_casualties(killed)}" if error.traceback else ""
    return replace(error, message=message, traceback=traceback, reason="memory")


def _in_turns(before: StreamBuffers, printed: StreamBuffers) -> tuple[int, ...]:
    """The order of both, one after the other."""
    if not before.size:
        return printed.in_turns
    if not printed.size:
        return before.in_turns
    return ()


MOST_OVERTAKEN = 16
"""Queries of other authors that may overtake a waiting cell, so that no number of them blocks it."""

_QUESTIONS = (RequestKind.DESCRIBE, RequestKind.FETCH, RequestKind.LOOK_UP_FILES, RequestKind.READ_FILE)


def enqueue(waiting: deque[JailRequest], request: JailRequest) -> None:
    """Inserts a request at its place."""
    place = len(waiting)
    if place and request.ask in _QUESTIONS:
        while place and _lets_pass(waiting[place - 1], request):
            place -= 1
            waiting[place].overtaken += 1
    waiting.insert(place, request)


def withdrawn(waiting: deque[JailRequest], seat: AuthorSession) -> list[JailRequest]:
    """Removes the requests of one session, and returns them."""
    gone = [request for request in waiting if request.seat is seat]
    for request in gone:
        waiting.remove(request)
    return gone


def _lets_pass(waiting: JailRequest, question: JailRequest) -> bool:
    return (
        waiting.ask is RequestKind.EXECUTE
        and waiting.seat is not question.seat
        and waiting.overtaken < MOST_OVERTAKEN
    )


class JailWork:
    """The work of one supervisor, used under its lock."""

    def __init__(self) -> None:
        self.running: RunningRequest | None = None
        """From when it is about to be sent until it has an outcome."""
        self.waiting: deque[JailRequest] = deque()
        """See `enqueue` for their order."""
        self.background = StreamBuffers(BACKGROUND)
        """Output that came while nothing ran: the next cell's result contains it."""

    @property
    def is_there(self) -> bool:
        """Whether a request runs or waits."""
        return self.running is not None or bool(self.waiting)

    def take_running(self) -> RunningRequest:
        """Takes the running request; the caller gives it an outcome."""
        running, self.running = self.running, None
        assert running is not None, "nothing was asked that this could be the answer to"
        running.rearm(None)
        return running

    def take_waiting(self) -> list[JailRequest]:
        """Takes the waiting requests; the caller gives them outcomes."""
        waiting, self.waiting = list(self.waiting), deque()
        return waiting

    def take_background(self) -> StreamBuffers:
        taken, self.background = self.background, StreamBuffers(BACKGROUND)
        return taken
