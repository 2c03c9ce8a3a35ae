"""A Jupyter kernel that saves only the code: restoring a state restarts it and runs all cells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from benchmarks.kernel import Kernel
from benchmarks.state.keeper import StateKeeper


class RerunningKeeper(StateKeeper):
    keeps_values = False

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        super().__init__(folder, memory, keeping=keeping)
        self._cells: list[str] = []
        self._kept: list[str] = []
        self._kernel = Kernel(sys.executable, folder=str(folder))

    def execute(self, code: str) -> str:
        self._cells.append(code)
        return self._kernel.execute(code)

    def prepare(self, code: str) -> None:
        self.execute(code)

    def peek(self, code: str) -> str:
        return self._kernel.execute(code)

    def keep(self) -> None:
        self._kept = self._cells[:]

    def go_back(self) -> None:
        self._kernel.close()
        self._kernel = Kernel(sys.executable, folder=str(self.folder))
        for cell in self._kept:
            self._kernel.execute(cell)

    def branch(self) -> Self:
        other = type(self)(self.folder, self.memory)
        for cell in self._kept:
            other.execute(cell)
        return other

    def crash(self, code: str) -> None:
        self._kernel.crash(code)
        self.go_back()

    def close(self) -> None:
        self._kernel.close()
