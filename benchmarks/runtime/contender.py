"""The interface that the benchmark needs of a runtime: the calls of an agent's host, in the contender's own idiom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self


class NotOfferedError(Exception):
    """The contender has no such call, or its call means something different. Not a failure."""


class CellFailedError(Exception):
    """A cell of the benchmark did not finish, so the figure would be wrong."""


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
        """Makes `value` available in the namespace under a new name; it is usable on return."""

    @abstractmethod
    def retrieve(self, name: str) -> object:
        """The value of a variable, as an object of this process."""

    @abstractmethod
    def prepare_hand_over(self, name: str) -> object:
        """Does the one-time work before any number of hand-overs of a variable; returns the argument of `receive`."""

    @abstractmethod
    def receive(self, name: str, parcel: object, giver: Self) -> None:
        """Makes what `giver` prepared available here; it is usable on return."""

    @abstractmethod
    def status(self) -> None:
        """Requests the status while a cell may be running; returns when the answer arrives."""

    @abstractmethod
    def close(self) -> None:
        """End the runtime and everything that belongs to it."""
