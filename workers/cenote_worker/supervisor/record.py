"""What is gathered of one request while its jail works on it, and what becomes of that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cenote_security.errors import CallTimeoutError
from cenote_worker.results import (
    CellUsage,
    ErrorInfo,
    ExecutionResult,
    Notice,
    StateAfter,
    StreamName,
)
from cenote_worker.supervisor.account import Spent
from cenote_worker.supervisor.autopsy import Death, Setback
from cenote_worker.supervisor.chronicle import Underway
from cenote_worker.supervisor.clock import CellClock
from cenote_worker.supervisor.edge import DisplayEvent, ExecutedReply, RefusedReply
from cenote_worker.supervisor.output import HeadAndTail
from cenote_worker.supervisor.protocol import CALLS
from cenote_worker.supervisor.reactor import Timer
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.trace import StepTrace

MAX_DISPLAYS = 1_000
"""Displayed objects kept of one cell."""

MAX_TURNS = 2000
"""Changes between the streams whose order is kept: a result says nothing of the order where there are more."""

BACKGROUND = 64 * 1024
"""Characters per stream kept of what is printed between cells."""


class Printed:
    """Both streams, each as head and tail from when something is printed to it: most cells print nothing."""

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
        """So much was printed, nobody knows to which stream, that is not known any more."""
        if characters:
            self.size += characters
            self._made("stdout").skip(characters)

    def text(self, stream: StreamName) -> str:
        return self._streams[stream].text() if stream in self._streams else ""

    def clear(self) -> None:
        """Forgets the text. What it has cost counts on."""
        self._streams.clear()

    @property
    def truncated(self) -> bool:
        return any([stream.truncated for stream in self._streams.values()])

    @property
    def in_turns(self) -> tuple[int, ...]:
        """Empty where it is not known, or tells nothing."""
        known = "stderr" in self._streams and len(self._turns) <= MAX_TURNS and not self.truncated
        return tuple(self._turns) if known else ()

    def _made(self, stream: StreamName) -> HeadAndTail:
        if stream not in self._streams:
            self._streams[stream] = HeadAndTail(self._limit)
        return self._streams[stream]


@dataclass(slots=True)
class Record:
    """The request that a jail works on. room: bytes of displayed objects that are still kept.

    unkept: why the state before it is not kept any more. news: see ExecutionResult.
    """

    request: JailRequest
    clock: CellClock
    printed: Printed
    room: int
    displayed: list[DisplayEvent] = field(default_factory=list)
    timer: Timer | None = None
    unkept: str = ""
    news: tuple[str, ...] = ()

    @classmethod
    def begun(cls, request: JailRequest, now: float, kept: int) -> Record:
        """Of a request that is about to be sent. kept: characters of each stream, and bytes of displayed objects."""
        return cls(request, CellClock(now, request.timeout), Printed(kept), kept)

    @classmethod
    def taken_up(cls, under: Underway, kept: int) -> Record:
        """Of one that a former supervisor has sent; what is known to have come of it is yet to be heard."""
        request = under.request
        clock = CellClock(
            under.started, request.timeout, interrupted_at=under.interrupted_at, expired=under.expired
        )
        record = cls(request, clock, Printed(kept), kept)
        record.printed.skip(under.missing)
        return record

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

    def finished(self, reply: ExecutedReply, before: Printed, spent: Spent, now: float) -> ExecutionResult:
        """The result of a cell that came to its end. before: what was printed since the last one."""
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
            ),  # the jail's word: time limits and budgets are made of it
            reply=reply.reply if success else None,
            notices=reply.notices,
            trace=reply.trace,
            unkept=self.unkept or reply.unkept,
            differing=reply.differing,
        )

    def answered(self, outcome: Outcome) -> Outcome:
        """Of a request that is no cell: what the time limit has caused is reported as that."""
        if not self.clock.expired or not isinstance(outcome, RefusedReply):
            return outcome
        assert self.clock.timeout is not None
        if self.request.ask in CALLS:
            return CallTimeoutError(self.clock.timeout)
        limit = f"it took longer than {self.clock.timeout:g} s and was interrupted"
        return replace(outcome, message=f"{outcome.message}; {limit}")

    def lost(self, death: Death, before: Printed, spent: Spent, now: float) -> ExecutionResult:
        """The result of a cell that took its jail with it."""
        return self._result(
            before,
            self._usage(spent, now),
            success=False,
            error=death.as_error(),
            duration=now - self.clock.started,
            state="lost",
        )

    def rolled_back(
        self, setback: Setback, severed: tuple[str, ...], before: Printed, spent: Spent, now: float
    ) -> ExecutionResult:
        """The result of a cell that took its process with it. severed: see Rollback."""
        return self._result(
            before,
            self._usage(spent, now),
            success=False,
            error=setback.as_error(severed),
            duration=now - self.clock.started,
            state="rolled_back",
            back_at=setback.step,
        )

    def _usage(self, spent: Spent, now: float) -> CellUsage:
        return CellUsage(
            wall=now - self.clock.started,
            cpu=spent.cpu,
            peak_memory=spent.peak_memory,
            bytes_written=spent.bytes_written,
            output_bytes=self.printed.size,
        )

    def _result(
        self,
        before: Printed,
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
            back_at=back_at,
            printed_in_turns=_in_turns(before, self.printed),
            news=(*self.news, *(f"not as in the state that was copied: {line}" for line in differing)),
        )

    def _timed_out(self, error: ErrorInfo | None) -> ErrorInfo | None:
        """An interrupt that the timeout caused is reported as what it was."""
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
    """An error of a cell whose children were killed for memory: most likely that is why."""
    if error is None or error.reason != "exception":
        return error
    message = f"{error.message}; {_casualties(killed)}"
    traceback = f"{error.traceback}\n{_casualties(killed)}" if error.traceback else ""
    return replace(error, message=message, traceback=traceback, reason="memory")


def _in_turns(before: Printed, printed: Printed) -> tuple[int, ...]:
    """Of both, one after the other."""
    if not before.size:
        return printed.in_turns
    if not printed.size:
        return before.in_turns
    return ()
