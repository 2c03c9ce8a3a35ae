"""The event loop, on a thread of its own, that serves everything remote of this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Final, TypeVar

from cenote.runtime.core.listeners import LOOK_UP
from cenote_security.errors import CenoteError, RuntimeClosedError, UnavailableError
from cenote_worker.wire.channels import ENVIRONMENT

T = TypeVar("T")

GOODBYE: Final = 2.0
"""Seconds that the end of the process may wait for platforms to take back what it had."""

_log = logging.getLogger("cenote.remote")


_making = threading.Lock()  # a cache alone lets two threads make two at once


def background() -> Background:
    """The process's own. Raises RuntimeClosedError in the child of a process that had one: gRPC survives no fork."""
    with _making:
        made = _made()
    if made.pid != os.getpid():
        raise RuntimeClosedError(
            "the process that forked this one is connected to a platform, and such connections do not survive "
            "a fork; start processes afresh instead (multiprocessing calls that `spawn`)"
        )
    return made


@lru_cache(maxsize=1)
def _made() -> Background:
    return Background()


class Background:
    """Not the loop for async host functions: users' code must not delay the line."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._last: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name="cenote-remote", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(_load_grpc(), self.loop).result()
        # Finalizers run newest first when the process ends: runtimes and references are closed before this is.
        weakref.finalize(self, _end, self.pid, self.loop, self._thread, self._last)

    # -- from any thread --

    @property
    def is_here(self) -> bool:
        """Whether the caller is on this loop; garbage collectors may be."""
        return threading.current_thread() is self._thread

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Runs it on the loop, soon. Raises RuntimeClosedError when the process is ending."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            raise RuntimeClosedError("this process is ending; it has left its platforms") from None

    def wait(self, work: Coroutine[Any, Any, T], patience: float, what: str) -> T:
        """The work's result; not on the loop itself. Raises UnavailableError after `patience` seconds."""
        try:
            future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise RuntimeClosedError("this process is ending; it has left its platforms") from None
        deadline = time.monotonic() + patience
        try:
            while not future.done() and (left := deadline - time.monotonic()) > 0:
                futures.wait((future,), min(left, LOOK_UP))
            if not future.done():
                raise UnavailableError(f"the platform took longer than {patience:g} s to {what}; try again")
            return future.result()
        finally:
            future.cancel()

    # -- on the loop --

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that need not be awaited. A failure is kept for callers who do await it; a fault is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def at_end(self, work: Callable[[], Awaitable[None]]) -> None:
        """Carries it out before the process ends."""
        self._last.append(work)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, CenoteError):
            _log.error("work for a platform failed", exc_info=error)


def _end(
    pid: int,
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    last: list[Callable[[], Awaitable[None]]],
) -> None:
    if os.getpid() != pid:  # a fork has no such thread
        return
    future = asyncio.run_coroutine_threadsafe(_say_goodbye(last), loop)
    with contextlib.suppress(TimeoutError):
        future.result(GOODBYE + 1)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(GOODBYE)
    if not thread.is_alive():
        loop.close()


async def _say_goodbye(last: list[Callable[[], Awaitable[None]]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE):
            await asyncio.gather(*(work() for work in last), return_exceptions=True)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=GOODBYE / 2)


async def _load_grpc() -> None:
    """Loads gRPC and starts it on this loop. It writes nothing to stderr unless the environment asks for it.

    What goes wrong is raised to the caller; its log knows no loggers. It reads the environment once.
    """
    settings = {**ENVIRONMENT, "GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    ours = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in ours})
    try:
        import grpc.aio

        grpc.aio.init_grpc_aio()
    finally:
        for name in ours:
            del os.environ[name]
