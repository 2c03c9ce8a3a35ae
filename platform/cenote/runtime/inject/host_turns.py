"""Where host functions run: plain ones on threads, async ones on an event loop.

The loop has a thread of its own while no caller awaits. Calls that wait for their turn are counted, since a jail
may make any number of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

THREADS: Final = 16
"""Plain host functions that run at once, per runtime."""

MAX_WAITING: Final = 10_000
"""Calls that wait for a thread, or for the loop to look at them. A jail may cancel what it has called and call again:
of each such call something is left until its turn comes."""

_Result = TypeVar("_Result")


class HostTurns:
    """Of one runtime."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Nothing more should be asked for."""
        return self._waiting >= MAX_WAITING

    def on_thread(self, work: Callable[[], _Result]) -> Future[_Result]:
        """Runs the work on a thread. Cancelling it before its turn releases all that it holds."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cenote-host")
        future: Future[_Result] = Future()
        self._count(1)
        self._pool.submit(self._run, _Turn(work, future))
        return future

    def on_loop(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """The loop takes what it is given in order: it comes to `work` right behind its count."""
        self._count(1)
        loop.call_soon_threadsafe(self._count, -1)
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Functions that are running are left to finish."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, turn: _Turn[_Result]) -> None:
        self._count(-1)
        turn.run()

    def _count(self, more: int) -> None:
        with self._lock:
            self._waiting += more


class _Turn(Generic[_Result]):
    """A call on its way to a thread. Until then the pool keeps what it was given: this alone, once it is over."""

    def __init__(self, work: Callable[[], _Result], future: Future[_Result]) -> None:
        self._held: tuple[Callable[[], _Result], Future[_Result]] | None = (work, future)
        future.add_done_callback(self._over)

    def run(self) -> None:
        held = self._held
        if held is None or not held[1].set_running_or_notify_cancel():
            return
        work, future = held
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  (the future passes it on)
            future.set_exception(error)
        else:
            future.set_result(result)

    def _over(self, _: Future[_Result]) -> None:
        self._held = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's loop for such calls; started on first use, again in a forked child."""
    return _loop_of(os.getpid())


@lru_cache(maxsize=1)
def _loop_of(pid: int) -> asyncio.AbstractEventLoop:
    del pid  # only the key: a thread does not survive a fork
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cenote-host-loop", daemon=True).start()
    return loop
