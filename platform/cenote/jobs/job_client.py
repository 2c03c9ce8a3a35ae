"""JobService, as this process uses it. On the background loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.channels import DEADLINE, asked, authorization, meaning
from cenote.runtime.remote.platform_client import client_of
from cenote.runtime.remote.reconnection import RetrySchedule, say_waiting, short, without_waiting
from cenote.runtime.remote.references import Terms
from cenote_proto.scalars import make
from cenote_proto.v1 import job_pb2
from cenote_proto.v1.job_pb2_grpc import JobServiceStub
from cenote_security.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from cenote_proto.v1.job_pb2_grpc import JobServiceAsyncStub

Answer = TypeVar("Answer")

SECONDS_KEPT: Final = 3600.0
"""Seconds that a job's variables are kept for it before it begins, and after its end."""

SUBMITTING: Final = 300.0
"""Seconds for the tasks of a small job to arrive, or for the platform to change all rows of a large one."""

_RATE: Final = 256 * 2**10
"""Bytes of tasks that arrive in a second at least."""

_OF_A_TASK: Final = 0.001
"""Seconds that the platform may take to store one task."""


def submission_time(*, tasks: int, size: int) -> float:
    """Seconds in which so many tasks arrive at the latest. size: their bytes."""
    return SUBMITTING + size / _RATE + tasks * _OF_A_TASK


LOOK_EVERY: Final = 0.2
SELDOM: Final = 2.0
"""Seconds between two looks whether a job is over: more and more, up to the second."""


class JobClient:
    """Of one platform. Calls raise what the gateway refuses with, and UnavailableError when it does not answer."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self.wait = destination.wait

    async def submit(
        self, head: job_pb2.JobHead, tasks: Iterable[job_pb2.JobTasks], timeout: float
    ) -> job_pb2.JobDescription:
        """Once more where the line broke: its key says that it is the same. tasks: read again for that."""

        def parts() -> Iterator[job_pb2.SubmitJobRequest]:
            yield job_pb2.SubmitJobRequest(head=head)
            count = 0
            for some in tasks:
                yield job_pb2.SubmitJobRequest(tasks=some)
                count += len(some.tasks)
            yield job_pb2.SubmitJobRequest(end=job_pb2.JobEnd(tasks=count))

        patience, loop = RetrySchedule(self._destination.wait), asyncio.get_running_loop()
        patience.stands(loop.time())
        while True:
            try:
                terms = Terms(metadata=authorization(self._destination.token), timeout=timeout)
                return await self._ask(self._stub().SubmitJob(parts(), **terms))
            except UnavailableError as error:
                pause = patience.broke(loop.time())
                if pause is None:
                    raise
                say_waiting("the platform", patience, short(str(error)))
                del error
            await asyncio.sleep(pause)

    async def get(self, name: str) -> job_pb2.JobDescription:
        return await self._ask(self._stub().GetJob(make(job_pb2.JobName, name=name), **self._terms()))

    async def page(self, after: str, limit: int) -> list[job_pb2.JobDescription]:
        """By name, those after this one."""
        request = make(job_pb2.ListJobsRequest, page=after, limit=limit)
        return list((await self._ask(self._stub().ListJobs(request, **self._terms()))).jobs)

    async def all(self) -> list[job_pb2.JobDescription]:
        """All jobs of this client's tenant."""
        found: list[job_pb2.JobDescription] = []
        page = ""
        while True:
            request = make(job_pb2.ListJobsRequest, page=page)
            reply = await self._ask(self._stub().ListJobs(request, **self._terms()))
            found.extend(reply.jobs)
            if not (page := reply.next_page):
                return found

    async def room(self) -> int:
        """For how many tasks of one job the platform's machines have room."""
        reply = await self._ask(self._stub().GetRoom(job_pb2.RoomQuestion(), **self._terms()))
        return reply.tasks

    async def log(self, job: str, task: str) -> job_pb2.TaskLog:
        request = make(job_pb2.TaskName, job=job, task=task)
        return await self._ask(self._stub().GetTaskLog(request, **self._terms()))

    async def tasks(self, request: job_pb2.ListTasksRequest) -> job_pb2.ListTasksReply:
        return await self._ask(self._stub().ListTasks(request, **self._terms()))

    async def task(self, job: str, task: str) -> job_pb2.TaskDescription:
        request = make(job_pb2.TaskName, job=job, task=task)
        return await self._ask(self._stub().GetTask(request, **self._terms()))

    async def failures(self, name: str) -> job_pb2.ListFailuresReply:
        return await self._ask(self._stub().ListFailures(make(job_pb2.JobName, name=name), **self._terms()))

    async def cancel(self, name: str) -> job_pb2.JobDescription:
        return await self._ask(self._stub().CancelJob(make(job_pb2.JobName, name=name), **self._terms()))

    async def retry(self, request: job_pb2.RetryRequest) -> job_pb2.JobDescription:
        return await self._ask(self._stub().RetryJob(request, **self._terms(SUBMITTING)))

    async def delete(self, name: str) -> None:
        await self._ask(self._stub().DeleteJob(make(job_pb2.JobName, name=name), **self._terms(SUBMITTING)))

    async def described(self, name: str, patience: RetrySchedule) -> job_pb2.JobDescription:
        """As `get`, but retries for a while when no platform answers."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                with without_waiting():
                    found = await self.get(name)
                patience.stands(loop.time())
                return found
            except UnavailableError:
                await _pause(patience)

    async def results(self, job: str, after: int, *, follow: bool) -> AsyncGenerator[job_pb2.JobResult, None]:
        """In the order of the input, behind that place. Goes on where a broken line broke."""
        patience, loop = RetrySchedule(self._destination.wait), asyncio.get_running_loop()
        while True:
            request = make(job_pb2.ResultsRequest, job=job, after=after, follow=follow)
            call = self._stub().GetResults(request, metadata=authorization(self._destination.token))
            try:
                async for result in call:
                    patience.stands(loop.time())
                    after = result.index
                    yield result
                return
            except grpc.aio.AioRpcError as error:
                told = meaning(error, self._destination.address, token=self._destination.token)
                if not isinstance(told, UnavailableError):
                    raise told from None
            finally:
                call.cancel()
            await _pause(patience)

    async def keep(self, reference: ObjectReference, holder: str) -> str:
        """Has a shared value kept for a job that is about to be submitted. Raises UsageError for a foreign one."""
        holding = reference.holding
        if holding.place != self._destination.address:
            raise UsageError("a job works with values of its platform: share one from a runtime of it")
        await client_of(self._destination).references.leave(str(holding.id), holder, SECONDS_KEPT)
        return str(holding.id)

    def _stub(self) -> JobServiceAsyncStub:
        return JobServiceStub(client_of(self._destination).channels.to(self._destination.address))

    def _terms(self, timeout: float = DEADLINE) -> Terms:
        return Terms(metadata=authorization(self._destination.token), timeout=timeout)

    async def _ask(self, call: Awaitable[Answer]) -> Answer:
        return await asked(call, self._destination)


async def _pause(patience: RetrySchedule) -> None:
    """Raises UnavailableError when there is no patience left."""
    pause = patience.broke(asyncio.get_running_loop().time())
    if pause is None:
        raise UnavailableError("the platform does not answer any more; the job goes on, ask again later")
    say_waiting("the platform", patience, "the job goes on meanwhile, if it can")
    await asyncio.sleep(pause)
