"""Several coroutines at once, none of which outlives the call; and waiting for a change, across threads and
loops.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cenote.team.errors import NoSuccessError

T = TypeVar("T")


class AsyncCondition:
    """Wakes all waiting tasks when something has changed.

    asyncio's own conditions belong to one loop; what a team shares is also changed by host calls, from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        """Wakes the waiting tasks. Called from any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with suppress(RuntimeError):  # the loop was closed: no caller waits any more
                loop.call_soon_threadsafe(_wake, future)

    async def until(self, ready: Callable[[], T | None]) -> T:
        """What `ready` gives as soon as that is not None; it is called again after each ring."""
        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()
            with self._lock:
                self._waiting[future] = loop
            try:
                # Asked after the future is in place: a ring in between is not missed.
                if (result := ready()) is not None:
                    return result
                await future
            finally:
                with self._lock:
                    self._waiting.pop(future, None)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


Job = Coroutine[Any, Any, T]


async def all_of(jobs: Sequence[Job[T]], limit: int | None = None) -> list[T]:
    """All results, in order; at most `limit` jobs run at once. The first failure cancels the others and is raised."""
    places = asyncio.Semaphore(limit or max(len(jobs), 1))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_in_place(job, places)) for job in jobs]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        _close(jobs)
    return [task.result() for task in tasks]


async def to_its_end(job: Job[T]) -> T:
    """What the job gives. A cancellation waits until it has ended: for what must not be left half done."""
    task = asyncio.ensure_future(job)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def first_of(jobs: Sequence[Job[T]]) -> T:
    """What the first job to end gives, or raises; the others are cancelled and have ended by then."""
    (first,) = (await _until(jobs, lambda _: True))[-1:]
    return first.get()


async def first_success(jobs: Sequence[Job[T]]) -> T:
    """What the first job to succeed gives; the others are cancelled and have ended by then.

    Raises NoSuccessError if none does.
    """
    ends = await _until(jobs, lambda end: end.error is None)
    if ends[-1].error is not None:
        errors = sorted(ends, key=lambda end: end.number)
        raise NoSuccessError([end.error for end in errors if end.error is not None])
    return ends[-1].get()


@dataclass(frozen=True, slots=True, kw_only=True)
class _End(Generic[T]):
    """How a job ended: with one result, or an error. number: its place among the jobs."""

    number: int
    results: tuple[T, ...] = ()
    error: BaseException | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return self.results[0]


async def _until(jobs: Sequence[Job[T]], enough: Callable[[_End[T]], bool]) -> list[_End[T]]:
    """How jobs ended, in that order, up to the one that was enough, or all."""
    ends: list[_End[T]] = []
    bell = asyncio.Event()

    async def watched(number: int, job: Job[T]) -> None:
        end: _End[T]
        try:
            end = _End(number=number, results=(await job,))
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            end = _End(number=number, error=error)  # what the job waits for was cancelled
        except Exception as error:  # noqa: BLE001  (whatever it is, the others decide whether it counts)
            end = _End(number=number, error=error)
        if not bell.is_set():
            ends.append(end)
        if enough(end) or len(ends) == len(jobs):
            bell.set()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watched(number, job)) for number, job in enumerate(jobs)]
            await bell.wait()
            for task in tasks:
                task.cancel()
    finally:
        _close(jobs)
    return ends


async def _in_place(job: Job[T], places: asyncio.Semaphore) -> T:
    async with places:
        return await job


def _close(jobs: Iterable[Job[T]]) -> None:
    """Closes the jobs: one whose task was cancelled before it began would warn that it was never awaited."""
    for job in jobs:
        job.close()
