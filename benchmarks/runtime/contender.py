"""What the benchmark asks of a runtime: the calls of an agent's host, in the contender's own idiom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self


class NotOfferedError(Exception):
    """The contender has no such call, or what it has does not mean the same. Not a failure."""


class CellFailedError(Exception):
    """A cell of the benchmark did not run to its end; the figure would be a lie."""


class Contender(ABC):
    """One runtime. The constructor returns when a cell can be sent.

    `separate` says whether model-written code runs in a process of its own; without that, moving a value is
    an assignment and is marked as such in the report.
    """

    separate: ClassVar[bool]

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell and return what it printed. Raises CellFailedError."""

    @abstractmethod
    def inject(self, name: str, value: object) -> None:
        """Make `value` available in the namespace under a new name. On return it is usable."""

    @abstractmethod
    def retrieve(self, name: str) -> object:
        """The value of a variable, as an object of this process."""

    @abstractmethod
    def prepare_hand_over(self, name: str) -> object:
        """Do once what precedes any number of hand-overs of a variable; returns what `receive` takes."""

    @abstractmethod
    def receive(self, name: str, parcel: object, giver: Self) -> None:
        """Make what `giver` prepared available here. On return it is usable."""

    @abstractmethod
    def status(self) -> None:
        """Ask for a sign of life while a cell may be running; return when it came."""

    @abstractmethod
    def close(self) -> None:
        """End the runtime and whatever belongs to it."""
