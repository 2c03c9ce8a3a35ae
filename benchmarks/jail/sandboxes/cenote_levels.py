"""Cenote's levels, through the public API of its runtime."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.jail.sandbox import CellFailedError, DoesNotRunHereError, Sandbox
from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation, Mount, SandboxPolicy
from cenote_security.walls.root import WORKDIR


class CenoteLevel(Sandbox):
    """A runtime with the default policy except for its level, without snapshots and tracking (no isolation).

    Without a private root the working folder is in the host's `/tmp`, so the scratch folder is mounted.
    """

    bare: ClassVar[str] = "cenote none"
    isolation: ClassVar[Isolation]
    shows_scratch: ClassVar[bool] = True

    def __init__(self, scratch: str) -> None:
        super().__init__(scratch)
        mounts = [Mount(source=scratch, writable=True)] if self.shows_scratch else []
        policy = SandboxPolicy(isolation=self.isolation, mounts=mounts, snapshots="none", tracking=False)
        self._runtime = PythonRuntime(sandbox=policy)

    def execute(self, code: str) -> str:
        try:
            result = self._runtime.execute(code)
        except IsolationUnavailableError as error:
            raise DoesNotRunHereError(str(error)) from error
        if not result.success:
            raise CellFailedError(str(result.error))
        return result.stdout

    def close(self) -> None:
        self._runtime.close()


class CenoteNone(CenoteLevel):
    isolation = "none"


class CenoteLandlock(CenoteLevel):
    isolation = "landlock"


class CenoteStrict(CenoteLevel):
    isolation = "strict"
    shows_scratch = False

    @property
    def folder(self) -> str:
        return WORKDIR
