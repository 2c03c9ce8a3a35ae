"""Cenote's embedded runtime, through its public API."""

from __future__ import annotations

from typing import ClassVar, Self

from benchmarks.runtime.contender import CellFailedError, Contender
from cenote.runtime import PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy


class CenoteContender(Contender):
    separate: ClassVar[bool] = True
    policy: ClassVar[SandboxPolicy] = SandboxPolicy()

    def __init__(self) -> None:
        self._runtime = PythonRuntime(sandbox=self.policy)

    def execute(self, code: str) -> str:
        result = self._runtime.execute(code)
        if not result.success:
            raise CellFailedError(str(result.error))
        return result.stdout

    def inject(self, name: str, value: object) -> None:
        self._runtime.inject(Variable(name, value))

    def retrieve(self, name: str) -> object:
        value: object = self._runtime.retrieve(name)
        return value

    def prepare_hand_over(self, name: str) -> object:
        return self._runtime.share(name)

    def receive(self, name: str, parcel: object, giver: Self) -> None:  # noqa: ARG002  (the interface's)
        self._runtime.inject(Variable(name, parcel))

    def status(self) -> None:
        self._runtime.status()

    def close(self) -> None:
        self._runtime.close()


class CenoteBareContender(CenoteContender):
    """Without copies of the state between cells, and without tracking of reads and writes."""

    policy: ClassVar[SandboxPolicy] = SandboxPolicy(snapshots="none", tracking=False)
