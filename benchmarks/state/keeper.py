"""The interface that the benchmark needs of a contender that saves a namespace's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.runtime.contender import NotOfferedError
from benchmarks.state.cpu import timed


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Cost of saving a state: wall seconds, CPU seconds of all processes involved, bytes stored."""

    wall: float
    cpu: float
    stored: int = 0

    @classmethod
    def by(cls, work: Callable[[], int]) -> Self:
        """Measures work that returns the number of bytes it has written."""
        stored, wall, cpu = timed(work)
        return cls(wall=wall, cpu=cpu, stored=stored)


class StateKeeper(ABC):
    """A namespace that runs cells, and a way to save its state. All values must be preserved.

    keeps_values: not only the code that made them.
    """

    keeps_values: ClassVar[bool] = True

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        """folder: where it stores data. memory: bytes it may use. keeping: it saves the state at each cell."""
        self.folder = folder
        self.memory = memory
        self.keeping = keeping

    @abstractmethod
    def execute(self, code: str) -> str:
        """Runs a cell, and saves its end if this contender does so. Returns the output. Raises CellFailedError."""

    @abstractmethod
    def prepare(self, code: str) -> None:
        """Runs a cell whose final state `keep` or `store` will save, or that changes what they saved."""

    @abstractmethod
    def peek(self, code: str) -> str:
        """Runs a cell that changes nothing, without saving if possible. Returns the output."""

    @abstractmethod
    def keep(self) -> Kept | None:
        """Saves the state that the last `prepare` left. None if there is nothing to do."""

    @abstractmethod
    def go_back(self) -> None:
        """Returns to the state that `keep` saved last."""

    @abstractmethod
    def branch(self) -> Self:
        """Another namespace that begins with the state `keep` saved last, which this one is also in and keeps."""

    @abstractmethod
    def crash(self, code: str) -> None:
        """Runs a cell that ends the process; returns when the state saved last can be used again."""

    def store(self) -> Kept:
        """Like `keep`, but the state outlives all processes."""
        raise NotOfferedError("it stores nothing")

    def reopened(self) -> Self:
        """Opens what was stored last in new processes, after this one was closed."""
        raise NotOfferedError("it stores nothing")

    def sleep(self) -> None:
        """Ends all processes of the namespace; the next cell starts them again, in the same state."""
        raise NotOfferedError("it does not sleep")

    def wake(self, _code: str) -> str:
        """Like `peek`, for the first cell afterwards. Raises CellFailedError if it woke in an unexpected way."""
        raise NotOfferedError("it does not sleep")

    @abstractmethod
    def close(self) -> None:
        """Ends it. Stored data stays."""
