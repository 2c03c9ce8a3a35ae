"""The runtimes of a job's tasks: one per attempt, named so that a later process finds those that are left."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from cenote.jobs.job_client import SECONDS_KEPT, JobClient
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.platform_client import client_of
from cenote.runtime.remote.runtime import RemoteRuntime
from cenote_security.errors import CenoteError, UnknownRuntimeError
from cenote_security.ids import JobId
from cenote_security.policy import SandboxPolicy

T = TypeVar("T")

LEASE: Final = 60.0
"""Seconds that a task's runtime outlives the process that works on its job, if no other process ends it before."""


class JobRuntimes:
    """Runs on the job's own loop."""

    def __init__(self, destination: Destination, job: JobId, policy: SandboxPolicy) -> None:
        self._client = client_of(destination)
        self._jobs = JobClient(destination)
        self._job = job
        self._policy = policy

    def make(self, position: int, attempt: int) -> AsyncPythonRuntime:
        """Nothing is sent before the first call."""
        # A creation that was interrupted may still succeed, so a name is never used again.
        name = f"{names_of(self._job)}{position}-{attempt}-{secrets.token_hex(3)}"
        backend = partial(RemoteRuntime, self._client, name=name, lease=LEASE)
        return AsyncPythonRuntime.holding(RuntimeCore((), (), (), None, self._policy, name, backend))

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        """Ends the runtime with all that runs in it. If that fails now, it ends with its lease."""
        # Both at once: a session that is not closing would look for the deleted runtime elsewhere.
        await asyncio.gather(runtime.close(), self._delete(runtime.name))

    async def _delete(self, name: str) -> None:
        with suppress(CenoteError):
            await self._off(self._client.delete(name))

    async def clear(self) -> None:
        """Ends what former processes have left: it has no client, and must not run next to another attempt."""
        for described in await self._off(self._client.list()):
            if described.name.startswith(names_of(self._job)):
                with suppress(UnknownRuntimeError):
                    await self._off(self._client.delete(described.name))

    async def room(self) -> int:
        """How many tasks the platform's machines have room for."""
        return await self._off(self._jobs.room())

    async def reference(self, reference_id: str) -> ObjectReference:
        """A shared value, held for as long as the reference is. Raises UnknownReferenceError."""
        holding, info = await self._off(self._client.references.find(reference_id, holder_of(self._job)))
        return ObjectReference(holding, info)

    async def leave(self, reference_id: str) -> None:
        """Keeps the value for a while, in case tasks are run again."""
        kept = self._client.references.leave(reference_id, later_holder_of(self._job), SECONDS_KEPT)
        with suppress(CenoteError):
            await self._off(kept)

    async def _off(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs on the loop that has the connections to platforms."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, background().loop))


def names_of(job: JobId) -> str:
    """The common prefix of the runtime names of a job's tasks."""
    return f"job-{job[3:13]}-"


def holder_of(job: JobId) -> str:
    return f"job {job}"


def later_holder_of(job: JobId) -> str:
    """The holder of values that are kept for a while, for the next process that works on the job."""
    return f"{holder_of(job)}, later"
