"""The shared values of jobs: kept while there is something to do of a job, whether or not somebody works on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from cenote.gateway.answers import public
from cenote.gateway.callers import Callers
from cenote.gateway.jobs.registry import JobRegistry
from cenote.gateway.jobs.runtimes import later_holder_of
from cenote.gateway.principal import Principal
from cenote.runtime.remote.jobs import SECONDS_KEPT
from cenote_proto.scalars import make
from cenote_proto.v1 import reference_pb2
from cenote_security.errors import UnknownReferenceError

log = logging.getLogger("cenote.jobs")

KEEP_EVERY: Final = SECONDS_KEPT / 4
"""Seconds between two requests to keep them for longer: one that fails is followed by others in good time."""

Hold = Callable[[Principal, reference_pb2.HoldRequest], Awaitable[None]]
"""Has a value held for a tenant. Raises what may come of a call."""


class JobValues:
    """On the gateway's loop. every: seconds."""

    def __init__(self, jobs: JobRegistry, callers: Callers, hold: Hold, *, every: float = KEEP_EVERY) -> None:
        self._jobs = jobs
        self._callers = callers
        self._hold = hold
        self._every = every

    async def keep(self) -> None:
        """For ever."""
        while True:
            await self._keep_all()
            await asyncio.sleep(self._every)

    async def _keep_all(self) -> None:
        try:
            wanted = await self._callers.on_thread(lambda: list(self._wanted()))
        except Exception as error:  # noqa: BLE001  (a database that is away for a moment; it is logged there)
            log.warning("the values of jobs could not be looked after: %s", public(error))
            return
        for principal, request in wanted:
            try:
                await self._hold(principal, request)
            except Exception as error:  # noqa: BLE001  (of one value, and the others are to be kept)
                told = public(error)
                if not isinstance(told, UnknownReferenceError):  # of which whoever works on the job tells
                    log.warning("a value of a job could not be kept for longer: %s", told)

    def _wanted(self) -> Iterator[tuple[Principal, reference_pb2.HoldRequest]]:
        for job, principal, references in self._jobs.values():
            for reference in references:
                holder = later_holder_of(job)
                yield (
                    principal,
                    make(reference_pb2.HoldRequest, id=reference, holder=holder, lease=SECONDS_KEPT),
                )
