"""The interface that the benchmark needs of a sandbox: it keeps a namespace and runs cells in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar


class DoesNotRunHereError(Exception):
    """This machine lacks the sandbox, or does not allow it. Has the reason; not a failure of the benchmark."""


class CellFailedError(Exception):
    """A cell of the benchmark did not finish, so its figures would be wrong."""


class Sandbox(ABC):
    """One sandbox with a Python in it. The constructor may return before a cell can run; `execute` waits.

    Raises DoesNotRunHereError, from the constructor or the first `execute`.

    bare: the same contender without isolation; the difference is the cost of isolation.
    rounds_apart: takes part only in each n-th round, for sandboxes whose cells take many times longer.
    """

    bare: ClassVar[str]
    rounds_apart: ClassVar[int] = 1

    def __init__(self, scratch: str) -> None:
        """scratch: a memory-backed folder of the host that belongs to this benchmark and is open to all users."""
        self._scratch = scratch

    @property
    def folder(self) -> str:
        """A memory-backed folder that cells may write to, under its path inside the sandbox."""
        return self._scratch

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell and return what it printed. Raises CellFailedError, DoesNotRunHereError."""

    @abstractmethod
    def close(self) -> None:
        """End everything that belongs to this sandbox."""
