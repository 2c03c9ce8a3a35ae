"""The interface that the benchmark needs of a namespace service: its client's calls, in the service's own idiom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar, Generic, TypeVar

from benchmarks.runtime.contender import NotOfferedError


class Namespace(ABC):
    """One remote namespace. Used by one thread at a time."""

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell and return what it printed. Raises CellFailedError."""

    @abstractmethod
    def share(self, name: str) -> object:
        """Does the one-time work before any number of hand-overs of a variable; returns the argument of `receive`."""

    @abstractmethod
    def receive(self, name: str, parcel: object) -> None:
        """Makes what was shared available here; it is usable on return."""

    @abstractmethod
    def close(self) -> None:
        """End the namespace."""


N = TypeVar("N", bound=Namespace)


class Service(ABC, Generic[N]):
    """A service that is up when the constructor returns.

    cheap: a further namespace is not a new process that must load its libraries.
    """

    cheap: ClassVar[bool]

    @property
    def address(self) -> str:
        """Address at which Cenote's agents find their runtimes. Raises NotOfferedError for other services."""
        raise NotOfferedError("it has no agents")

    @abstractmethod
    def open(self) -> N:
        """A new namespace. Called from several threads concurrently."""

    def apart(self) -> AbstractContextManager[tuple[Callable[[], N], Callable[[], N]]]:
        """Functions that open a namespace on one machine, and on another machine of the same service.

        At most one of each is open at a time. Raises NotOfferedError.
        """
        raise NotOfferedError("one machine")

    @abstractmethod
    def close(self) -> None:
        """Ends the service and everything that belongs to it."""

    def choose(self, pair: tuple[int, int]) -> int:
        """The count that applies to this service; see Parameters."""
        return pair[0] if self.cheap else pair[1]


AnyService = Service[Namespace]
