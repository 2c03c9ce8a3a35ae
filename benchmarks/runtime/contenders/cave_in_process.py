"""cave-agent's IPythonRuntime: IPython's shell in the caller's process, one namespace for all runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping

from cave_agent.runtime import IPythonRuntime, Variable

from benchmarks.runtime.contender import CellFailedError
from benchmarks.runtime.contenders.same_process import SameProcessContender


class CaveInProcessContender(SameProcessContender):
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runtime = IPythonRuntime()

    @property
    def namespace(self) -> MutableMapping[str, object]:
        namespace: dict[str, object] = self._runtime._executor._shell.user_ns
        return namespace

    def execute(self, code: str) -> str:
        result = self._runner.run(self._runtime.execute(code))
        if not result.success:
            raise CellFailedError(repr(result.error))
        return result.stdout or ""

    def inject(self, name: str, value: object) -> None:
        self._runtime.inject_variable(Variable(name, value))

    def retrieve(self, name: str) -> object:
        """The library retrieves only names registered with it, so a cell's own variable is registered first."""
        self._runtime._variables.setdefault(name, Variable(name))
        value: object = self._runner.run(self._runtime.retrieve(name))
        return value

    def close(self) -> None:
        """The namespace is the process's only one and cannot be ended with its runtime."""
        self._runner.close()
