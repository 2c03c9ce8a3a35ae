"""cave-agent's IPyKernelRuntime: a Jupyter kernel; values travel as dill in base64 inside source code."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Self

from cave_agent.runtime import IPyKernelRuntime, Variable

from benchmarks.runtime.contender import CellFailedError, Contender, NotOfferedError


class CaveKernelContender(Contender):
    separate: ClassVar[bool] = True

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runtime = IPyKernelRuntime()
        self._runner.run(self._runtime.start())

    def execute(self, code: str) -> str:
        result = self._runner.run(self._runtime.execute(code))
        if not result.success:
            raise CellFailedError(repr(result.error))
        return result.stdout or ""

    def inject(self, name: str, value: object) -> None:
        """Followed by an empty cell, since the library only queues the value and sends it before the next cell."""
        self._runtime.inject_variable(Variable(name, value))
        self.execute("pass")

    def retrieve(self, name: str) -> object:
        """The library retrieves only names registered with it, so a cell's own variable is registered first."""
        self._runtime._variables.setdefault(name, Variable(name))
        value: object = self._runner.run(self._runtime.retrieve(name))
        return value

    def prepare_hand_over(self, name: str) -> object:
        return self.retrieve(name)

    def receive(self, name: str, parcel: object, giver: Self) -> None:  # noqa: ARG002  (the interface's)
        self.inject(name, parcel)

    def status(self) -> None:
        raise NotOfferedError("no call that reaches a busy kernel")

    def close(self) -> None:
        self._runner.run(self._runtime.stop())
        self._runner.close()
