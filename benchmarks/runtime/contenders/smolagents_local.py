"""smolagents' LocalPythonExecutor: an interpreter of syntax trees in the caller's process."""

from __future__ import annotations

from collections.abc import MutableMapping

from smolagents.local_python_executor import LocalPythonExecutor

from benchmarks.runtime.contenders.same_process import SameProcessContender


class SmolagentsContender(SameProcessContender):
    def __init__(self) -> None:
        self._executor = LocalPythonExecutor(
            additional_authorized_imports=["numpy", "pandas"], timeout_seconds=None
        )
        self._executor.send_tools({})  # without this call not even print() is defined

    @property
    def namespace(self) -> MutableMapping[str, object]:
        namespace: dict[str, object] = self._executor.state
        return namespace

    def execute(self, code: str) -> str:
        return str(self._executor(code).logs)
