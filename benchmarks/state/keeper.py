"""What the benchmark asks of whoever keeps the state of a namespace."""

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
    """What keeping a state took: seconds by the clock, CPU seconds of all that took part, bytes that were stored."""

    wall: float
    cpu: float
    stored: int = 0

    @classmethod
    def by(cls, work: Callable[[], int]) -> Self:
        """What some work takes that tells how many bytes it has written."""
        stored, wall, cpu = timed(work)
        return cls(wall=wall, cpu=cpu, stored=stored)


class StateKeeper(ABC):
    """A namespace that runs cells, and a way to keep what it holds. All values are as they were, or it is no keeping.

    keeps_values: and not just the code that made them.
    """

    keeps_values: ClassVar[bool] = True

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        """folder: its own, for what it stores. memory: bytes it may use. keeping: it keeps the state at each cell."""
        self.folder = folder
        self.memory = memory
        self.keeping = keeping

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell, and keep its end if that is what this one does. What it printed. Raises CellFailedError."""

    @abstractmethod
    def prepare(self, code: str) -> None:
        """Run a cell whose end `keep` or `store` will keep, or that leads away from what they kept."""

    @abstractmethod
    def peek(self, code: str) -> str:
        """Run a cell that changes nothing; nothing is kept for it where that can be had. What it printed."""

    @abstractmethod
    def keep(self) -> Kept | None:
        """Keep the state that the last `prepare` has left. None where there is nothing to do."""

    @abstractmethod
    def go_back(self) -> None:
        """To what `keep` has kept last."""

    @abstractmethod
    def branch(self) -> Self:
        """Another namespace that begins with what `keep` has kept last, which this one is at too, and stays at."""

    @abstractmethod
    def crash(self, code: str) -> None:
        """Run a cell that ends the process; return when the state that was kept last can be used again."""

    def store(self) -> Kept:
        """As `keep`, where it outlives all processes."""
        raise NotOfferedError("it stores nothing")

    def reopened(self) -> Self:
        """What was stored last, in processes of its own, after this one was closed."""
        raise NotOfferedError("it stores nothing")

    @abstractmethod
    def close(self) -> None:
        """End it. What it has stored stays."""
