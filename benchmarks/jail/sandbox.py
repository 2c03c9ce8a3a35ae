"""What the benchmark asks of a sandbox: that it keeps a namespace and runs cells in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar


class DoesNotRunHereError(Exception):
    """This machine lacks the sandbox, or does not let it work. Says why; not a failure of the benchmark."""


class CellFailedError(Exception):
    """A cell of the benchmark did not run to its end; its figures would be a lie."""


class Sandbox(ABC):
    """One sandbox with a Python in it. The constructor may return before a cell can run; `execute` waits.

    Raises DoesNotRunHereError, from the constructor or the first `execute`.

    bare: the contender that is the same without walls. What it takes less is what the walls cost.
    rounds_apart: it takes part in every so many rounds, where a cell takes it many times longer than the others.
    """

    bare: ClassVar[str]
    rounds_apart: ClassVar[int] = 1

    def __init__(self, scratch: str) -> None:
        """scratch: a memory-backed folder of the host that is this benchmark's, open to all users."""
        self._scratch = scratch

    @property
    def folder(self) -> str:
        """A memory-backed folder that cells may write to, as they name it."""
        return self._scratch

    @abstractmethod
    def execute(self, code: str) -> str:
        """Run a cell and return what it printed. Raises CellFailedError, DoesNotRunHereError."""

    @abstractmethod
    def close(self) -> None:
        """End everything that belongs to this sandbox."""
