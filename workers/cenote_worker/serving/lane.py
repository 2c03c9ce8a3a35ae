"""Work that takes as long as the code in one jail likes, apart from that of all other runtimes."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from cenote_security.errors import UnavailableError
from cenote_worker.serving.listeners import post

T = TypeVar("T")


class Lane:
    """One piece after the other, on a thread that is there as long as there is any. On the loop only.

    Not a pool: threads that jails share are soon all in the hands of a few of them.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._running = False

    def carry_out(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = self._loop.create_future()
        with self._lock:
            self._waiting.append((work, future))
            begins, self._running = not self._running, True
        if begins:
            self._begin()
        return future

    def close(self) -> None:
        """What has not begun is not carried out."""
        with self._lock:
            left, self._waiting = self._waiting, deque()
        for _, future in left:
            future.cancel()

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._run, name="cenote-lane", daemon=True).start()
        except RuntimeError:  # the machine has no room for one more thread
            with self._lock:
                (_, future), self._running = self._waiting.pop(), False
            future.set_exception(UnavailableError("this machine has no thread left; nothing ran, try again"))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                work, future = self._waiting.popleft()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  (whatever it is: whoever waits is told)
                post(self._loop, _settle, future, partial(future.set_exception, error))
            else:
                post(self._loop, _settle, future, partial(future.set_result, result))


def _settle(future: Future[Any], settled: Callable[[], None]) -> None:
    """Nobody may wait any more."""
    if not future.done():
        settled()
