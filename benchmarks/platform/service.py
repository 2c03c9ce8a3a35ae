"""What the benchmark asks of whatever serves namespaces: the calls of its client, in the service's own idiom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar, Generic, TypeVar

from benchmarks.runtime.contender import NotOfferedError


class Namespace(ABC):
    """One namespace behind a line. Used by one thread at a time."""

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell and return what it printed. Raises CellFailedError."""

    @abstractmethod
    def share(self, name: str) -> object:
        """Do once what precedes any number of hand-overs of a variable; returns what `receive` takes."""

    @abstractmethod
    def receive(self, name: str, parcel: object) -> None:
        """Make what was shared available here. On return it is usable."""

    @abstractmethod
    def close(self) -> None:
        """End the namespace."""


N = TypeVar("N", bound=Namespace)


class Service(ABC, Generic[N]):
    """A service that is up when the constructor returns.

    cheap: a further namespace is not a fresh process that has to load its libraries.
    """

    cheap: ClassVar[bool]

    @property
    def address(self) -> str:
        """Where agents of Cenote find their runtimes. Raises NotOfferedError for what is no platform of it."""
        raise NotOfferedError("it has no agents")

    @abstractmethod
    def open(self) -> N:
        """A namespace of its own. Called from several threads at once."""

    def apart(self) -> AbstractContextManager[tuple[Callable[[], N], Callable[[], N]]]:
        """How namespaces are opened on one machine, and on another of the same service.

        At most one of each is open at a time. Raises NotOfferedError.
        """
        raise NotOfferedError("one machine")

    @abstractmethod
    def close(self) -> None:
        """End the service and whatever belongs to it."""

    def choose(self, pair: tuple[int, int]) -> int:
        """How many of something this service is asked for; see Parameters."""
        return pair[0] if self.cheap else pair[1]


AnyService = Service[Namespace]
