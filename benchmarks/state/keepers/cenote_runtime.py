"""Cenote's embedded runtime, through its public API: snapshots between cells, checkpoints in a store."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from benchmarks.runtime.contender import CellFailedError
from benchmarks.state.keeper import Kept, StateKeeper
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.checkpoints import Checkpoints

NAME = "state"


class CenoteKeeper(StateKeeper):
    durable: ClassVar[bool] = False
    wakes: ClassVar[str] = "exact"
    """How a runtime has its state again that has slept."""

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        super().__init__(folder, memory, keeping=keeping)
        self._runtime = PythonRuntime(
            sandbox=self._policy(), store=str(folder), name=NAME, durable=self.durable and keeping
        )

    def _policy(self) -> SandboxPolicy:
        """Cells are tracked in both cases; the cost of tracking is measured by another benchmark."""
        return SandboxPolicy(memory=self.memory, snapshots="auto" if self.keeping else "none")

    def execute(self, code: str) -> str:
        result = self._runtime.execute(code)
        if not result.success:
            raise CellFailedError(str(result.error))
        return result.stdout

    def prepare(self, code: str) -> None:
        self.execute(code)

    def peek(self, code: str) -> str:
        return self.execute(code)

    def keep(self) -> Kept:
        """Waits for the copy that is made after each cell, and labels it."""
        return Kept.by(lambda: self._runtime.snapshot("kept").memory)

    def go_back(self) -> None:
        self._runtime.rollback("kept")

    def branch(self) -> Self:
        return self._over(self._runtime.fork())

    def crash(self, code: str) -> None:
        result = self._runtime.execute(code)
        if result.state != "rolled_back":
            raise CellFailedError(f"the state is {result.state}: {result.error}")

    def store(self) -> Kept:
        return Kept.by(lambda: self._runtime.checkpoint().stored)

    def reopened(self) -> Self:
        return self._over(PythonRuntime.restore(str(self.folder), NAME, sandbox=self._policy()))

    def sleep(self) -> None:
        self._runtime.hibernate()

    def wake(self, _code: str) -> str:
        found = self.peek(_code)
        carried = self._runtime.carried
        if carried is None or carried.how != self.wakes:
            raise CellFailedError(f"the runtime has its state otherwise than expected: {carried}")
        return found

    def _over(self, runtime: PythonRuntime) -> Self:
        other = type(self).__new__(type(self))
        StateKeeper.__init__(other, self.folder, self.memory, keeping=self.keeping)
        other._runtime = runtime
        return other

    def close(self) -> None:
        self._runtime.close()


class CenoteDurableKeeper(CenoteKeeper):
    """The state after each cell is on disk before it is acknowledged, as with Kishu and dumps."""

    durable = True


class CenoteByValueKeeper(CenoteKeeper):
    """Without images of processes, as where the store is no disk of this machine."""

    wakes = "rebuilt"

    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        super().__init__(folder, memory, keeping=keeping)
        backend = self._runtime.core.backend
        assert isinstance(backend, HostedRuntime)
        assert isinstance(backend.refill, Checkpoints)
        backend.refill.processes.files = None
