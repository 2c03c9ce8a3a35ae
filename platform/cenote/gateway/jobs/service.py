"""JobService: a tenant's jobs, by name.

Also keeps the shared values of jobs alive while a job is not over.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NoReturn, TypeVar

from cenote.gateway.api.calls import Context, GatewayCalls, public
from cenote.gateway.api.fair_turns import TenantSemaphore, to_its_end
from cenote.gateway.jobs.registry import JobRegistry, Submission
from cenote.gateway.jobs.runtimes import later_holder_of
from cenote.gateway.jobs.tables import JobRow
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.principal import Principal
from cenote.jobs.job_client import SECONDS_KEPT, SUBMITTING, submission_time
from cenote_proto.scalars import make
from cenote_proto.v1 import job_pb2, reference_pb2
from cenote_proto.v1.job_pb2_grpc import JobServiceServicer
from cenote_security.errors import UnavailableError, UnknownReferenceError, UsageError
from cenote_security.ids import JobId

T = TypeVar("T")

LOOK_EVERY: Final = 0.1
"""Seconds between two looks for results, each some ten microseconds."""

ARRIVING: Final = 8
OF_ONE_TENANT: Final = 2
"""Concurrent submissions of one tenant: each has up to 4 MiB in memory and writes to the shared database."""


class JobService(JobServiceServicer):
    """Runs on the gateway's loop; blocking calls run on threads."""

    def __init__(self, stores: Stores, registry: JobRegistry, callers: GatewayCalls) -> None:
        self._stores = stores
        self._registry = registry
        self._callers = callers
        self._turns = TenantSemaphore(ARRIVING, OF_ONE_TENANT)

    async def SubmitJob(
        self, requests: AsyncIterator[job_pb2.SubmitJobRequest], context: Context
    ) -> job_pb2.JobDescription:
        async with self._callers.served(context, "job.submit") as principal:
            async with self._turns.turn(principal):
                try:
                    async with asyncio.timeout(SUBMITTING) as limit:
                        job = await self._submitted(principal, requests, limit)
                except TimeoutError:
                    raise UnavailableError(
                        "the tasks arrived too slowly; submit them again, as several jobs"
                    ) from None
            return await self._callers.on_thread(lambda: self._registry.described(job))
        raise AssertionError("a call that failed was ended")

    async def GetJob(self, request: job_pb2.JobName, context: Context) -> job_pb2.JobDescription:
        return await self._job(context, "job.get", lambda who: self._registry.find(who, request.name))

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Context) -> job_pb2.ListJobsReply:
        def page(principal: Principal) -> job_pb2.ListJobsReply:
            found, after = self._registry.page(principal, request.page, request.limit)
            return make(job_pb2.ListJobsReply, jobs=map(self._registry.described, found), next_page=after)

        return await self._answer(context, "job.list", page)

    async def GetResults(self, request: job_pb2.ResultsRequest, context: Context) -> None:  # type: ignore[override]
        async with self._callers.served(context, "job.results") as principal:
            job = await self._callers.on_thread(lambda: self._registry.find(principal, request.job))
            barred = asyncio.create_task(self._callers.barred(context))
            try:
                async for result in self._results(principal, job.id, request, barred):
                    await context.write(result)
            finally:
                barred.cancel()

    async def ListTasks(self, request: job_pb2.ListTasksRequest, context: Context) -> job_pb2.ListTasksReply:
        return await self._answer(context, "job.tasks", lambda who: self._registry.tasks(who, request))

    async def GetTask(self, request: job_pb2.TaskName, context: Context) -> job_pb2.TaskDescription:
        return await self._answer(context, "job.task", lambda who: self._registry.task(who, request))

    async def ListFailures(self, request: job_pb2.JobName, context: Context) -> job_pb2.ListFailuresReply:
        return await self._answer(
            context, "job.failures", lambda who: self._registry.failures(who, request.name)
        )

    async def GetTaskLog(self, request: job_pb2.TaskName, context: Context) -> job_pb2.TaskLog:
        return await self._answer(context, "job.logs", lambda who: self._registry.log(who, request))

    async def CancelJob(self, request: job_pb2.JobName, context: Context) -> job_pb2.JobDescription:
        return await self._job(context, "job.cancel", lambda who: self._registry.cancel(who, request.name))

    async def RetryJob(self, request: job_pb2.RetryRequest, context: Context) -> job_pb2.JobDescription:
        return await self._job(context, "job.retry", lambda who: self._registry.retry(who, request))

    async def DeleteJob(self, request: job_pb2.JobName, context: Context) -> job_pb2.DeleteJobReply:
        def delete(principal: Principal) -> job_pb2.DeleteJobReply:
            self._registry.delete(principal, request.name)
            return job_pb2.DeleteJobReply()

        return await self._answer(context, "job.delete", delete)

    async def GetRoom(self, _request: job_pb2.RoomQuestion, context: Context) -> job_pb2.JobRoom:
        return await self._answer(
            context, "job.room", lambda _: make(job_pb2.JobRoom, tasks=self._registry.room())
        )

    # -- arriving --

    async def _submitted(
        self,
        principal: Principal,
        requests: AsyncIterator[job_pb2.SubmitJobRequest],
        limit: asyncio.Timeout,
    ) -> JobRow:
        """limit: is put off by what arrives, so that a client that stops sending does not keep its slot."""
        begun, parts = asyncio.get_running_loop().time(), aiter(requests)
        head = await anext(parts, None)
        if head is None or not head.HasField("head"):
            raise UsageError("a submission begins with what all tasks have in common")
        submission = await self._begun(principal, head.head)
        try:
            async for request in parts:
                if request.HasField("end"):
                    complete = partial(self._registry.complete, submission, request.end.tasks)
                    return await to_its_end(self._callers.on_thread(complete))
                if not request.HasField("tasks"):
                    raise UsageError("behind its head, a submission has tasks alone, and then its end")
                tasks = request.tasks.tasks
                await to_its_end(self._callers.on_thread(partial(self._registry.add, submission, tasks)))
                seen = submission.check
                limit.reschedule(begun + submission_time(tasks=seen.tasks, size=seen.bytes))
            # For a client that has disconnected, the stream sometimes just ends.
            raise UnavailableError("the tasks did not all arrive; submit them again")
        except BaseException:
            await to_its_end(self._callers.on_thread(lambda: self._registry.discard(submission)))
            raise

    async def _begun(self, principal: Principal, head: job_pb2.JobHead) -> Submission:
        return await to_its_end(self._callers.on_thread(lambda: self._registry.begin(principal, head)))

    # -- results --

    async def _results(
        self, principal: Principal, job: JobId, request: job_pb2.ResultsRequest, barred: Task[NoReturn]
    ) -> AsyncIterator[job_pb2.JobResult]:
        """barred: see GatewayCalls. It is checked also while no results come."""
        heard, tasks = request.after, self._stores.job_tasks
        while True:
            if barred.done():
                await barred
            # The order matters: the end of a job is written after the results of all its tasks.
            row = await self._callers.on_thread(lambda: self._registry.find(principal, job))
            page = await self._callers.on_thread(partial(tasks.results, job, heard, whole=request.follow))
            for result in page:
                if barred.done():  # the reader may have been slow
                    await barred
                yield result
                heard = result.index
            if not page:
                if not request.follow or row.state in ("done", "cancelled"):
                    return
                await asyncio.sleep(LOOK_EVERY)

    async def _job(
        self, context: Context, action: str, work: Callable[[Principal], JobRow]
    ) -> job_pb2.JobDescription:
        return await self._answer(context, action, lambda who: self._registry.described(work(who)))

    async def _answer(self, context: Context, action: str, work: Callable[[Principal], T]) -> T:
        async with self._callers.served(context, action) as principal:
            answered: Awaitable[T] = self._callers.on_thread(lambda: work(principal))
            return await answered
        raise AssertionError("a call that failed was ended")


log = logging.getLogger("cenote.jobs")

KEEP_EVERY: Final = SECONDS_KEPT / 4
"""Seconds between two requests to extend the lifetime of shared values, so that one may fail."""

Hold = Callable[[Principal, reference_pb2.HoldRequest], Awaitable[None]]
"""Holds a value for a tenant. Raises the errors of that call."""


class SharedJobValues:
    """Runs on the gateway's loop. every: seconds."""

    def __init__(
        self, jobs: JobRegistry, callers: GatewayCalls, hold: Hold, *, every: float = KEEP_EVERY
    ) -> None:
        self._jobs = jobs
        self._callers = callers
        self._hold = hold
        self._every = every

    async def keep(self) -> None:
        """Runs until cancelled."""
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
                if not isinstance(told, UnknownReferenceError):  # the job's process reports those
                    log.warning("a value of a job could not be kept for longer: %s", told)

    def _wanted(self) -> Iterator[tuple[Principal, reference_pb2.HoldRequest]]:
        for job, principal, references in self._jobs.values():
            for reference in references:
                holder = later_holder_of(job)
                yield (
                    principal,
                    make(reference_pb2.HoldRequest, id=reference, holder=holder, lease=SECONDS_KEPT),
                )
