"""Why a jail or its worker ended, in words for a program and for a model, and what is known while a copy continues.

A jail that ends takes its namespace with it. When only the worker dies, the warden continues with a copy that it
has made, and each client concerned is informed once how far the namespace has gone back. No I/O, no clock.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cenote_worker.execution.results import ErrorInfo, ExecutionResult, Rollback
from cenote_worker.supervisor.frame_parser import KeptReply, RefusedReply, ReplyBody, SurveyedReply
from cenote_worker.supervisor.protocol import CHANGES
from cenote_worker.supervisor.requests import JailRequest, Outcome

LOST = "everything that earlier cells made is gone; the next cell starts with the injected values only"


@dataclass(frozen=True, slots=True, kw_only=True)
class JailExit:
    """What is known of a jail's end.

    reason: `time`, `memory`, `closed`, `protocol`, `exit`, `killed`, `signal 11`, ...
    text: what to say instead of the reason's usual sentence. outside: no code in the jail can have caused it.
    """

    reason: str
    detail: str = ""
    text: str = ""
    outside: bool = False

    def describe(self, *, in_cell: bool = False) -> str:
        """in_cell: for the result of the cell that was running."""
        usual = _TEXTS.get(self.reason, f"the runtime's process ended ({self.reason})")
        if in_cell and self.reason == "exit":
            usual = "the cell ended the runtime's process"
        text = self.text or usual
        return f"{text}: {self.detail}" if self.detail else text

    def as_error(self) -> ErrorInfo:
        kind = "TimeoutError" if self.reason == "time" else "RuntimeLost"
        message = f"{self.describe(in_cell=True)}; {LOST}"
        return ErrorInfo(type=kind, message=message, reason=self.reason, outside=self.outside)

    def before(self, step: int, author: str = "") -> ExecutionResult:
        """The result of a cell that did not run because the jail had ended."""
        message = (
            f"the cell did not run: the runtime had ended before it ({self.describe()}) and everything that "
            f"earlier cells made is gone; the next cell starts with the injected values only"
        )
        error = ErrorInfo(type="RuntimeLost", message=message, reason=self.reason, outside=self.outside)
        return ExecutionResult(success=False, error=error, step=step, state="lost", author=author)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRestart:
    """The worker died, and a copy of it continues, at the end of `step`. before: the step at which the worker was."""

    death: JailExit
    step: int
    before: int

    def as_error(self, severed: Sequence[str] = ()) -> ErrorInfo:
        """The error of the cell that the worker died in. severed: see Rollback."""
        kind = _KINDS.get(self.death.reason, "CellCrashed")
        message = f"{self.death.describe(in_cell=True)}; {self._where()}{_cut_off(severed)}"
        return ErrorInfo(type=kind, message=message, reason=self.death.reason, outside=self.death.outside)

    def before_cell(self, step: int, author: str = "") -> ExecutionResult:
        """The result of a cell that did not run, since the worker had died before it."""
        text = f"the cell did not run: before it, {self.death.describe()}; {self._where()}"
        error = ErrorInfo(
            type="CellCrashed", message=text, reason=self.death.reason, outside=self.death.outside
        )
        return ExecutionResult(
            success=False, error=error, step=step, state="rolled_back", author=author, back_at=self.step
        )

    def before_request(self) -> str:
        """For a client whose other request was not carried out for the same reason."""
        return f"nothing ran, try again: before it, {self.death.describe()}; {self._where()}"

    def as_news(self) -> str:
        """For a client that has run a cell in the namespace as it is now."""
        return f"before this cell, {self.death.describe()}; {self._where()}"

    def _where(self) -> str:
        if self.step == self.before:
            return "the namespace is as it was before the cell"
        at = f"after step {self.step}" if self.step else "before the first cell"
        return f"the namespace is back as it was {at}, the nearest state that was kept"


def _cut_off(severed: Sequence[str]) -> str:
    names = ", ".join(f"`{name}`" for name in severed)
    return f"; connections, threads and processes could not come along: {names}" if names else ""


_KINDS = {"time": "TimeoutError", "memory": "MemoryError"}

_TEXTS = {
    "time": "the cell ran out of time, ignored the interrupt and was killed",
    "interrupt": "the cell ignored the interrupt and was killed",
    "memory": "the runtime used more memory than its limit and was killed",
    "exit": "the runtime's process ended by itself",
    "protocol": "the runtime broke the protocol with its supervisor and was killed",
    "killed": "the runtime was killed from outside",
    "closed": "the runtime was closed",
}

_FAULT = "the runtime's process met what looks like a fault of Cenote's own (please report what is on stderr)"


def from_warden(signal_number: int | None, status: int | None, out_of_memory: bool) -> JailExit:
    """The warden's report of how the namespace process ended."""
    if out_of_memory:
        return JailExit(reason="memory")
    if signal_number == signal.SIGKILL:
        return JailExit(reason="killed", detail="SIGKILL")
    if signal_number is not None:
        return JailExit(reason=f"signal {signal_number}", detail=_signal_name(signal_number))
    if status == os.EX_SOFTWARE:
        return JailExit(reason="exit", detail=f"exit status {status}", text=_FAULT)
    return JailExit(reason="exit", detail=f"exit status {status}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


STRIKE_SECONDS = 12.0
"""Seconds for a jail to put a copy in the place of a killed worker; after that the jail is ended as a whole."""

MOST_DEATHS = 20
"""Deaths of workers during one request before the whole jail is ended; the warden goes back a step each time."""


@dataclass(slots=True)
class WorkerRecovery:
    """struck: why the worker was condemned, until a copy of it has taken its place.

    setback: what happened to the worker that the running request was sent to, or that was idle, until a client is
    informed. passing: likewise, where nothing is missing but threads, connections and processes, so that it can wait
    for the next cell. head: the step whose end the live namespace is at. touched: something other than a cell has
    changed it since. spared: the worker was killed for a limit, and no request was sent since. relieved: likewise,
    and all snapshots but the newest were given up. missing: whether the setback has taken the namespace further back
    than the running request. deaths: of workers since that was sent.
    """

    struck: JailExit | None = None
    setback: WorkerRestart | None = None
    passing: WorkerRestart | None = None
    head: int = 0
    touched: bool = False
    spared: bool = False
    relieved: bool = False
    missing: bool = False
    deaths: int = 0

    def begin(self) -> None:
        """Another request is about to be sent."""
        self.spared = self.relieved = False
        self.deaths = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether each worker that takes another's place dies, too."""
        return self.deaths > MOST_DEATHS

    def may_relieve(self) -> bool:
        """Whether giving up snapshots may help: true once for each request."""
        first, self.relieved = not self.relieved, True
        return first

    def may_strike(self) -> bool:
        """Whether killing the worker may help. False where that was tried and nothing has run since."""
        return not self.spared

    def strike(self, death: JailExit) -> None:
        self.struck, self.spared = death, True

    def ran(self, step: int) -> None:
        """The state is that of this step now, and can be restored: a cell has ended, or a snapshot of it was made."""
        self.head, self.touched = step, False

    def changed(self, step: int) -> None:
        """Something other than a cell has changed the state. step: its new number; 0 if it has the same."""
        if step:
            self.ran(step)
        else:
            self.touched = True

    def answered(self, request: JailRequest, reply: ReplyBody) -> Outcome:
        """The outcome of a request that is not a cell; its answer says where the state is now."""
        if isinstance(reply, SurveyedReply):
            self.found_at(reply.step)
            return Rollback(step=reply.step, severed=reply.severed, amiss=reply.amiss)
        if request.ask in CHANGES and not isinstance(reply, RefusedReply):
            self.changed(request.step)
        elif isinstance(reply, KeptReply):
            self.ran(reply.step)
        return reply

    def revive(self, found: JailExit, step: int) -> bool:
        """A copy continues. True when the state differs from the one before, or a request may have been lost."""
        death, self.struck = self.struck or found, None
        self.deaths += 1
        changed = self.missing = step != self.head or self.touched
        nearest = self.head if self.setback is None else self.setback.before
        self.setback = WorkerRestart(death=death, step=step, before=nearest)
        self.head, self.touched = step, False
        return changed

    def found_at(self, step: int) -> None:
        """The live worker has reported its step: the copy that continued may be another than the reported one."""
        self.head = step
        if self.setback is not None:
            self.setback = replace(self.setback, step=step)

    def news(self) -> tuple[str, ...]:
        """For the result of a cell that ran in a successor of the worker, which was idle when it died."""
        passing, self.passing = self.passing, None
        setback, missing = self.told(), self.missing
        if setback is not None and missing:
            return (setback.as_news(),)
        return () if passing is None else (passing.as_news(),)

    def pass_over(self) -> None:
        """Nothing was under way, and the state is the same: the next cell's result reports the death."""
        self.passing = self.told()

    def told(self) -> WorkerRestart | None:
        """Returns the setback, which the caller reports now, and clears it."""
        setback, self.setback = self.setback, None
        return setback
