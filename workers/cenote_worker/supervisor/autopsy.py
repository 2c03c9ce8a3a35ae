"""Why a jail ended, in words for a program and for a model."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from cenote_worker.results import ErrorInfo, ExecutionResult

LOST = "everything that earlier cells made is gone; the next cell starts with the injected values only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
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
class Setback:
    """The worker died, and a copy of it goes on. step: whose end that is at. before: where the worker was."""

    death: Death
    step: int
    before: int

    def as_error(self, severed: Sequence[str] = ()) -> ErrorInfo:
        """Of the cell that the worker died in. severed: see Rollback."""
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
        """For whoever has asked for something else, which was not done for the same reason."""
        return f"nothing ran, try again: before it, {self.death.describe()}; {self._where()}"

    def as_news(self) -> str:
        """For whoever has run a cell in the namespace as it is now."""
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


def from_warden(signal_number: int | None, status: int | None, out_of_memory: bool) -> Death:
    """The warden's account of how the namespace process ended."""
    if out_of_memory:
        return Death(reason="memory")
    if signal_number == signal.SIGKILL:
        return Death(reason="killed", detail="SIGKILL")
    if signal_number is not None:
        return Death(reason=f"signal {signal_number}", detail=_signal_name(signal_number))
    if status == os.EX_SOFTWARE:
        return Death(reason="exit", detail=f"exit status {status}", text=_FAULT)
    return Death(reason="exit", detail=f"exit status {status}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
