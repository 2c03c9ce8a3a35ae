"""States of a Jupyter kernel that a separate tool saves: a new kernel restores what is lost with the old one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from benchmarks.kernel import Kernel
from benchmarks.state.keeper import Kept, StateKeeper


class KernelKeeper(StateKeeper):
    """Saved state is on disk already, so `store` is `keep`, and reopening is a branch."""

    _kernel: Kernel

    @abstractmethod
    def _start(self) -> Kernel:
        """A kernel that can save its state, and has not saved any yet."""

    @abstractmethod
    def keep(self) -> Kept: ...

    def crash(self, code: str) -> None:
        self._kernel.crash(code)
        self._kernel.close()
        self._kernel = self._start()
        self.go_back()

    def store(self) -> Kept:
        return self.keep()

    def reopened(self) -> Self:
        return self.branch()

    def close(self) -> None:
        self._kernel.close()
