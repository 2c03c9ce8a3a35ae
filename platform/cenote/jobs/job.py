"""A job of a platform, as a script holds it. It goes on when the script has gone."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from cenote.jobs.reports import JobStatus, TaskLog, TaskResult, result_of, status_of
from cenote.jobs.source import named
from cenote.runtime.remote.background import background
from cenote.runtime.remote.jobs import LOOK_EVERY, SELDOM, JobClient
from cenote.runtime.remote.patience import Patience
from cenote.team.budget import Budget
from cenote_proto.scalars import make
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_worker.wire import option_messages

T = TypeVar("T")

PATIENCE: Final = 40.0
"""Seconds for a question to the gateway, which has a shorter deadline of its own."""


class Job:
    """Made by `platform.jobs`. Each call has a twin for code that awaits, with `async_` in front of its name.

    Calls raise UnknownEntryError for a job that is not there any more.
    """

    def __init__(self, client: JobClient, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self._client = client

    def status(self) -> JobStatus:
        """How far it is."""
        return self._ask(self._status())

    async def async_status(self) -> JobStatus:
        return await off(self._status())

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Waits until every task is over, or for `timeout` seconds. Gives its status then, whichever came first.

        A platform that does not answer for half a minute raises UnavailableError; the job goes on.
        """
        return ask(self._ended(timeout), math.inf)

    async def async_wait(self, timeout: float | None = None) -> JobStatus:
        return await off(self._ended(timeout))

    def results(self, *, follow: bool = False, after: int = 0) -> Iterator[TaskResult]:
        """What came of tasks, in the order of the input: of those that are over now.

        follow: waits for the others, each in its place, to the end of the job. after: only tasks behind that place of
        the input. A line that breaks is taken up where it broke.
        """
        stream = self._results(follow, after)
        try:
            while (result := ask(_next(stream), math.inf)) is not None:
                yield result
        finally:
            ask(_close(stream))

    async def async_results(
        self, *, follow: bool = False, after: int = 0
    ) -> AsyncGenerator[TaskResult, None]:
        stream = self._results(follow, after)
        try:
            while (result := await off(_next(stream))) is not None:
                yield result
        finally:
            await off(_close(stream))

    def logs(self, task: str) -> TaskLog:
        """What the last attempt at a task did, by the task's id: output, errors, an agent's code; head and tail."""
        return self._ask(self._log(task))

    async def async_logs(self, task: str) -> TaskLog:
        return await off(self._log(task))

    def cancel(self) -> JobStatus:
        """Interrupts what is under way, and begins nothing more. What is done stays."""
        return self._ask(self._cancelled())

    async def async_cancel(self) -> JobStatus:
        return await off(self._cancelled())

    def retry(self, tasks: Sequence[str] | None = None, *, budget: Budget | None = None) -> JobStatus:
        """Has tasks done again that failed or were cancelled: all of them, or those of these ids.

        Results of the others stay, and these have as many attempts as at first. budget: instead of the job's; what
        was spent before counts.
        """
        return self._ask(self._retried(tasks, budget))

    async def async_retry(
        self, tasks: Sequence[str] | None = None, *, budget: Budget | None = None
    ) -> JobStatus:
        return await off(self._retried(tasks, budget))

    def remove(self) -> None:
        """Ends what it does, and forgets it with its results."""
        self._ask(self._client.delete(self.id))

    async def async_remove(self) -> None:
        await off(self._client.delete(self.id))

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return ask(work, PATIENCE + self._client.wait)

    # -- on the background loop --

    async def _status(self) -> JobStatus:
        return status_of(await self._client.get(self.id))

    async def _ended(self, timeout: float | None) -> JobStatus:
        patience, pause = Patience(self._client.wait), LOOK_EVERY
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            status = status_of(await self._client.described(self.id, patience))
            left = ends - time.monotonic()
            if status.is_over or left <= 0:
                return status
            await asyncio.sleep(min(pause, left))
            pause = min(1.2 * pause, SELDOM)

    async def _results(self, follow: bool, after: int) -> AsyncGenerator[TaskResult, None]:
        messages = self._client.results(self.id, after, follow=follow)
        try:
            async for message in messages:
                yield result_of(message)
        finally:
            await messages.aclose()

    async def _log(self, task: str) -> TaskLog:
        message = await self._client.log(self.id, task)
        return TaskLog(text=message.text, left_out=message.left_out)

    async def _cancelled(self) -> JobStatus:
        return status_of(await self._client.cancel(self.id))

    async def _retried(self, tasks: Sequence[str] | None, budget: Budget | None) -> JobStatus:
        request = make(job_pb2.RetryRequest, job=self.id, tasks=named(tasks))
        if budget is not None:
            request.budget.CopyFrom(budget_message(budget))
        return status_of(await self._client.retry(request))


def budget_message(budget: Budget) -> team_pb2.TeamBudget:
    return option_messages.fill(team_pb2.TeamBudget(), budget)


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)


async def _close(stream: AsyncGenerator[T, None]) -> None:
    await stream.aclose()


def ask(work: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
    return background().wait(work, patience, "answer")


async def off(work: Coroutine[Any, Any, T]) -> T:
    """On the loop that has the lines to platforms."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, background().loop))
