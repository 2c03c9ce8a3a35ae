"""The event loop that `await` in a cell runs on: one for the life of a namespace, in the main thread.

A forked copy of the process shares two things with the original: the kernel's list of awaited descriptors (epoll),
and the pair of sockets by which a loop is woken. Descriptors that the original registers later would wake the copy
forever, and a wake-up could reach the wrong process. So a copy gives the loop its own list and wake-up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Protocol, cast

from cenote_worker.jail.process.cell_boundary import InterruptHandler, result_of
from cenote_worker.jail.tracking.process_state import event_loop_state
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


class _Loop(Protocol):
    """The interface of `asyncio.BaseSelectorEventLoop`, the same since Python 3.4."""

    _selector: selectors.BaseSelector

    def _close_self_pipe(self) -> None: ...

    def _make_self_pipe(self) -> None: ...


def make_own(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop its own list and wake-up; what it waits for stays. Loops of other kinds are left alone."""
    if not isinstance(loop, asyncio.SelectorEventLoop) or loop.is_closed() or loop.is_running():
        return
    inner = cast(_Loop, loop)
    shared, own = inner._selector, selectors.DefaultSelector()
    for key in list(shared.get_map().values()):
        with suppress(OSError):  # closed meanwhile: there is nothing to wait for
            own.register(key.fileobj, key.events, key.data)
    inner._selector = own  # from here on the loop does not touch the original's list
    inner._close_self_pipe()
    inner._make_self_pipe()
    shared.close()


_PATIENCE = 1.0
"""Seconds that cancelled code gets to clean up before the cell ends without it."""

_running_loop = asyncio._get_running_loop
_current_task = asyncio.current_task

Awaitable = Coroutine[object, object, object]


class CellLoop:
    """Runs a cell's coroutine to its end. Tasks that it leaves continue in later cells that await."""

    def __init__(self, interrupts: InterruptHandler) -> None:
        self._interrupts = interrupts
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Awaitable, context: contextvars.Context) -> object:
        """The coroutine's result. An interrupt cancels it and is raised as KeyboardInterrupt."""
        loop = self._open()
        task = loop.create_task(coroutine, context=context)
        attempt = _Attempt(loop, task)
        self._interrupts.cancel = attempt.cancel
        try:
            return loop.run_until_complete(task)
        except BaseException:
            self._interrupts.cancel = None
            _abandon(loop, task)
            if attempt.interrupted and task.cancelled():
                raise KeyboardInterrupt from None
            raise
        finally:
            self._interrupts.cancel = None

    def renew(self) -> None:
        """Called in a process other than the one whose loop it was."""
        if self._loop is not None:
            make_own(self._loop)

    def _open(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            allow_nested_run()
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            event_loop_state.serves_cells(self._loop)
        return self._loop


class _Attempt:
    """One run of a task, as the interrupt handler sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
        self._loop = loop
        self._task = task
        self.interrupted = False

    def cancel(self) -> bool:
        """Cancels the task if the loop is only waiting.

        False when Python code of a task is running, and on a second interrupt: then the exception must be raised
        right there. Raising it inside the waiting loop could lose callbacks that are ready.
        """
        if self.interrupted or _current_task(self._loop) is not None:
            return False
        self.interrupted = True
        self._task.cancel()
        self._loop.call_soon_threadsafe(_wake_up)
        return True


def _wake_up() -> None:
    """Does nothing: the call itself has ended the loop's wait."""


def _abandon(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    """Gives an abandoned task a moment to clean up."""
    if not task.done() and not loop.is_closed():
        task.cancel()
        loop.run_until_complete(asyncio.wait([task], timeout=_PATIENCE))
    if task.done() and not task.cancelled():
        task.exception()  # marks it as seen, or its loss would be logged later


def allow_nested_run() -> None:
    """Makes `asyncio.run` work in a cell that awaits: there it runs its coroutine in a thread of its own."""
    if getattr(asyncio.run, "_nests", False):
        return
    plain_run: Callable[..., object] = asyncio.run

    @functools.wraps(plain_run)
    def run(main: Awaitable, *, debug: bool | None = None, **options: object) -> object:
        if _running_loop() is None:
            return plain_run(main, debug=debug, **options)
        return _Beside(main).result()

    run._nests = True  # type: ignore[attr-defined]
    asyncio.run = run  # type: ignore[assignment]


class _Beside:
    """A coroutine that runs in its own thread and loop while the caller waits."""

    def __init__(self, main: Awaitable) -> None:
        self._main = main
        self._future: Future[object] = Future()
        self._runner = asyncio.Runner()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Set by its thread, before the thread checks whether it still has to run."""
        self._is_stopped = False
        self._thread = Thread(target=contextvars.copy_context().run, args=(self._work,), daemon=True)

    def result(self) -> object:
        try:
            self._thread.start()
            return result_of(self._future)
        except KeyboardInterrupt:
            self._stop()
            raise

    def _stop(self) -> None:
        self._is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has been closed
                self._loop.call_soon_threadsafe(self._cancel_all, self._loop)
        if self._thread.is_alive():  # false when the interrupt came during its start
            self._thread.join(_PATIENCE)

    def _work(self) -> None:
        try:
            with self._runner:
                self._loop = self._runner.get_loop()
                result = self._run()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)

    def _run(self) -> object:
        if self._is_stopped:
            self._main.close()
            raise asyncio.CancelledError
        return self._runner.run(self._main)

    @staticmethod
    def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
