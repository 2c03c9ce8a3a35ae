"""What a patch is applied to: a live state, its kept former states, and the means to run steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from cenote.harness.record.location_text import named, shown
from cenote_security.errors import CenoteError
from cenote_worker.execution.trace import Location, Version
from cenote_worker.history.step import StepRecord


class NotCarriedError(CenoteError):
    """A group could not be brought over from a kept state. The live state is as it was, but for files that may have
    come over."""

    def __init__(self, locations: Iterable[Location], reason: str) -> None:
        self.locations = tuple(sorted(locations))
        self.reason = reason
        super().__init__(self.locations, reason)

    def __str__(self) -> str:
        return f"{named(self.locations)} cannot be carried over: {shown(self.reason)}"


class EffectNotRepeatedError(CenoteError):
    """A step would have called an external host function with arguments that no record answers. It was not called."""

    def __init__(self, target: str, method: str, arguments: str = "") -> None:
        super().__init__(target, method, arguments)
        self.target = target
        self.method = method
        self.arguments = arguments

    def __str__(self) -> str:
        called = f"{self.target}.{self.method}" if self.method else self.target
        return f"{called}({self.arguments}) has an effect outside, and was not called before with these arguments"


class Ground(Protocol):
    """One runtime, as `apply_plan` sees it. It is used by one caller at a time."""

    def head(self) -> int:
        """The step whose child the next one will be; 0 for the start."""

    def kept(self) -> frozenset[int]:
        """Steps whose end state can be gone back to. What was kept may be given up at any time; see `holding`."""

    def stored(self) -> Mapping[int, int]:
        """Steps whose end state another process can begin in, beside the live one: from that no other former state
        can be reached. START is one where the history can be begun again; of others there are checkpoints.

        Each with the last step up to it after which a live state itself began with a stored one, or START: what no
        trace tells of earlier steps was lost then, if it was not stored.
        """

    @property
    def notes(self) -> Sequence[str]:
        """Deviations from the plan, in sentences."""

    def lent(self) -> frozenset[int]:
        """Steps whose end state can be carried from, though not gone back to."""

    def holding(self) -> AbstractContextManager[None]:
        """States that are kept now are not given up before the end of the block, unless memory is short."""

    def keep(self, *, partial: bool = False) -> bool:
        """Keeps the live state as that of the head. False when it cannot be, such as for running threads.

        partial: a part of it may still be that of the old line.
        """

    def rollback(self, step: int) -> Collection[str]:
        """The live state becomes that after a kept step, and that step the head. Raises NotKeptError, unchanged.

        Returns the names that were connections, pipes or processes, which no kept state has.
        """

    def branch(self, step: int) -> None:
        """The step becomes the head; the live state stays what it is."""

    def execute(self, record: StepRecord | None, code: str, *, tentative: bool) -> StepRecord:
        """Runs code as a new step, which stands for the record's if there is one, and becomes the head.

        Where that was a client's change of a file, there is no code, and the file is written or removed again.
        Host calls that equal a recorded one of that step get the recorded answer. Raises EffectNotRepeatedError,
        before anything is called, for an external call that was not recorded; if the run is tentative, for an
        idempotent one as well. What the code raises is in the record that comes back.
        """

    def reuse(self, record: StepRecord) -> StepRecord:
        """A new step, which becomes the head, with the result of this one. The live state stays what it is."""

    def versions(self, locations: Iterable[Location], author: str = "") -> Mapping[Location, Version]:
        """Versions in the live state; a location that is left out is not known. author: whose directory, environment
        and import path are meant, since each author has their own.
        """

    def unlike(self, step: int, versions: Mapping[Location, Version]) -> frozenset[Location]:
        """Locations that have another version in the live state, which has just begun with the stored state after
        this step. What had to be made again for it is taken to be right.
        """

    def carry(self, step: int, locations: frozenset[Location]) -> None:
        """Brings these over from the state after a kept or lent step, as one group. Raises NotCarriedError.

        Files come over by themselves, any number at once: what they hold, who may read them, when they were changed.
        A file that has several names, or that a process has open, does not, since others could tell the difference.

        What is not there in that state is not there afterwards. What shared objects with these before, and is not
        among them, keeps what it has.
        """

    def forget(self, locations: frozenset[Location]) -> None:
        """Removes names and files from the live state."""

    def arrange(self, names: Sequence[Location], *, whole: bool) -> None:
        """Puts the names of the live state that are among these into this order; each other one stays after the name
        that it follows now. whole: that makes it the state of the head."""

    def load(self, modules: tuple[str, ...]) -> None:
        """Imports what a step that is not run again had imported. What cannot be imported is left out."""
