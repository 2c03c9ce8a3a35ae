"""The contenders that run the cells: Cenote with its defaults, Cenote without a record, and ipykernel."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from cenote import PythonRuntime, SandboxPolicy

MEMORY: Final = "6GiB"


class Contender(Protocol):
    def execute(self, code: str) -> object: ...

    def close(self) -> None: ...


class Jail:
    """A runtime whose cells must succeed."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self.runtime = PythonRuntime(sandbox=policy)

    def execute(self, code: str) -> object:
        result = self.runtime.execute(code)
        if not result.success:
            raise RuntimeError(str(result.error))
        return result

    def close(self) -> None:
        self.runtime.close()


class KernelInFolder:
    """A kernel in a folder of its own."""

    def __init__(self) -> None:
        from benchmarks.kernel import Kernel  # it needs jupyter_client

        self._folder = tempfile.TemporaryDirectory()
        self._kernel = Kernel(sys.executable, folder=self._folder.name)

    def execute(self, code: str) -> object:
        return self._kernel.execute(code)

    def close(self) -> None:
        self._kernel.close()
        self._folder.cleanup()


CONTENDERS: Final[Mapping[str, Callable[[], Contender]]] = {
    "default": lambda: Jail(SandboxPolicy(memory=MEMORY)),
    "bare": lambda: Jail(SandboxPolicy(memory=MEMORY, snapshots="none", tracking=False)),
    "untracked": lambda: Jail(SandboxPolicy(memory=MEMORY, tracking=False)),
    "ipykernel": KernelInFolder,
}
"""untracked: with snapshots, without tracking."""


def lacking(name: str) -> str:
    """Why a contender cannot take part; empty if it can."""
    if name != "ipykernel":
        return ""
    missing = [each for each in ("ipykernel", "jupyter_client") if importlib.util.find_spec(each) is None]
    return f"ipykernel takes no part: {' and '.join(missing)} not installed here" if missing else ""
