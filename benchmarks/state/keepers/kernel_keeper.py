"""States of a Jupyter kernel that something beside it keeps: what is lost with the kernel, a new one gets back."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from benchmarks.kernel import Kernel
from benchmarks.state.keeper import Kept, StateKeeper


class KernelKeeper(StateKeeper):
    """What is kept is on disk already, so storing it is keeping it, and opening it again is a branch."""

    _kernel: Kernel

    @abstractmethod
    def _start(self) -> Kernel:
        """A kernel that can keep its state, and has none yet."""

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
