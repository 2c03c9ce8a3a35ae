"""The boundary between a user's program and the kernel: code that is triggered asynchronously runs in cells only.

SIGINT stops a cell, and nothing but a cell. Signal handlers, destructors and callbacks of the collector, audit hooks,
profilers and timers run wherever the interpreter happens to be. If one raised in the kernel's code, it would break
the kernel; if one ended the process, or never returned, a state that is not copied yet would be lost. So all of them
wait for the next cell. Their errors are shown there, and the cell runs all the same.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import faulthandler
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

import cenote_worker
from cenote_worker.jail.tracking.files import audit_hook
from cenote_worker.jail.tracking.process_state.event_loop_state import OWN
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.signals import DeferredSignals, Late
from cenote_worker.process.threads import thread_count

__builtins__ = BUILTINS

# The C functions: those of `signal` are Python code that a cell's changes to the builtins can break.
_get_handler, _set_handler, _SIGINT = _signal.getsignal, _signal.signal, _signal.SIGINT
_new_lock = _thread.allocate_lock

Result = TypeVar("Result")


def result_of(future: Future[Result]) -> Result:
    """Waits for the result, until an interrupt comes: `future.result()` would turn an interrupt at the beginning of
    the wait into a RuntimeError, since its condition then releases a lock that it does not hold.
    """
    done = _new_lock()
    done.acquire()
    future.add_done_callback(lambda _future: done.release())
    done.acquire()
    return future.result()


class InterruptHandler:
    """The handler of SIGINT: raises KeyboardInterrupt while armed, otherwise records the signal.

    armed: whether code of a cell is running. cancel: set while the event loop runs; called first, and returns whether
    it handled the interrupt.
    """

    def __init__(self) -> None:
        self.armed = False
        self._heard = False
        self.cancel: Callable[[], bool] | None = None
        self._handler = self._on_signal

    def install(self) -> None:
        """Makes this the process's handler again if a cell has replaced it."""
        if _get_handler(_SIGINT) is not self._handler:
            _set_handler(_SIGINT, self._handler)

    def forget(self) -> None:
        """Discards recorded signals, which were meant for another process."""
        self.armed = self._heard = False
        self.cancel = None

    def begin_cell(self, *, after_interrupt: bool) -> None:
        """Arms the handler. Raises KeyboardInterrupt if an interrupt came before the cell could begin.

        after_interrupt: a recorded signal may have come late, and be meant for the cell before.
        """
        self.armed = True
        heard, self._heard = self._heard, False
        if heard and not after_interrupt:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self.armed:
            self._heard = True
            return
        if self.cancel is not None and self.cancel():
            return
        raise KeyboardInterrupt


_is_collecting, _collect_no_more, _collect = gc.isenabled, gc.disable, gc.enable
_get_ident = _thread.get_ident
_gettrace, _settrace = sys.gettrace, sys.settrace
_getprofile, _setprofile = sys.getprofile, sys.setprofile
_get_limit, _set_limit = sys.getrecursionlimit, sys.setrecursionlimit
_add_hook = sys.addaudithook
_start_watchdog, _cancel_watchdog = (
    faulthandler.dump_traceback_later,
    faulthandler.cancel_dump_traceback_later,
)
_sleep, _now = time.sleep, time.monotonic

_WATCHDOG_SECONDS: Final = 0.5
"""Wait for a watchdog's thread to end. It takes microseconds, unless it had ended before."""

Note = Callable[[str], None]
Hook = Callable[[str, tuple[Any, ...]], object]


class BetweenCells:
    """The state of a process's kernel. is_open: whether the user's program runs.

    Trace and profile functions, and a recursion limit below the original one, end with their cell.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._limit = _get_limit()
        self._trace, self._profile = _gettrace(), _getprofile()
        self._signals: DeferredSignals | None = None
        """None if the process is not the kernel's alone."""
        self._is_collecting: bool | None = None
        """Whether the user's program has the collector on, while the boundary is closed."""
        self._events: dict[int, int] = {}
        """Events of `sys.monitoring`, by the number of the tool, likewise."""
        self._main = _get_ident()
        self._has_watchdog = False
        """Whether a cell has started one and has not cancelled it."""

    def guard(self) -> None:
        """The process is the kernel's alone: effects that show outside of it are held back as well from now on."""
        self._signals = DeferredSignals()
        sys.addaudithook = self._add_audit_hook
        self._know_of_watchdogs()
        _hide_from_tools()

    def open(self, late: Late) -> None:
        """The user's program runs from here on. late: see `DeferredSignals.open`. Raises KeyboardInterrupt."""
        self._trace, self._profile = _gettrace(), _getprofile()
        self.is_open = True
        if self._signals is None:
            return
        if self._is_collecting:
            _collect()
        self._is_collecting = None
        if self._events:
            _set_events(self._events)
            self._events = {}
        self._signals.open(late)

    def close(self, note: Note) -> None:
        """The kernel continues. A pending asynchronous error may be raised here: then call it again."""
        if _gettrace() is not self._trace:
            _settrace(self._trace)
            note("sys.settrace ends with the cell")
        if _getprofile() is not self._profile:
            _setprofile(self._profile)
            note("sys.setprofile ends with the cell")
        if _get_limit() < self._limit:
            _set_limit(self._limit)
        if self._signals is not None:
            self._signals.close()
            if self._is_collecting is None:
                self._is_collecting = _is_collecting()
            _collect_no_more()
            self._events |= _stopped_events()
            if self._has_watchdog and _end_watchdog():
                note("faulthandler.dump_traceback_later ends with the cell")
            self._has_watchdog = False
        self.is_open = False

    @property
    def is_collecting(self) -> bool:
        """Whether the user's program has the collector on."""
        return _is_collecting() if self._is_collecting is None else self._is_collecting

    def _know_of_watchdogs(self) -> None:
        """Tracks watchdogs, since nothing else shows that the thread of one exists."""

        @wraps(_start_watchdog)
        def dump_traceback_later(*arguments: Any, **options: Any) -> None:
            self._has_watchdog = True
            _start_watchdog(*arguments, **options)

        @wraps(_cancel_watchdog)
        def cancel_dump_traceback_later() -> None:
            _cancel_watchdog()
            self._has_watchdog = False

        faulthandler.dump_traceback_later = dump_traceback_later
        faulthandler.cancel_dump_traceback_later = cancel_dump_traceback_later

    def _add_audit_hook(self, hook: Hook) -> None:
        """Replaces `sys.addaudithook`: hooks cannot be removed, and an error in one ends the call."""

        def of_the_users(event: str, arguments: tuple[Any, ...]) -> None:
            ident = _get_ident()
            if (
                ident not in OWN
                and (self.is_open or ident != self._main)
                and not audit_hook.is_heard_by(ident)
            ):
                hook(event, arguments)

        of_the_users.__cantrace__ = bool(getattr(hook, "__cantrace__", False))  # type: ignore[attr-defined]
        _add_hook(of_the_users)


@contextmanager
def not_collecting() -> Iterator[None]:
    was_collecting = _is_collecting()
    _collect_no_more()
    try:
        yield
    finally:
        if was_collecting:
            _collect()


def _end_watchdog() -> bool:
    """Whether there was one: a thread that prints all threads' stacks after some time, and may end the process. Waits
    for its end: a cancelled thread lives for a moment longer, and would prevent a copy.
    """
    before = thread_count()
    if before == 1:
        return False
    _cancel_watchdog()
    until = _now() + _WATCHDOG_SECONDS
    while (is_there := thread_count() >= before) and _now() < until:
        _sleep(0.0001)
    return not is_there


if sys.version_info >= (3, 12):
    _monitoring = sys.monitoring
    _tool_of, _events_of, _listen = _monitoring.get_tool, _monitoring.get_events, _monitoring.set_events

    def _hide_from_tools() -> None:
        """Excludes the kernel's code, which runs before and after a cell's, from `sys.monitoring`."""
        register = _monitoring.register_callback
        once = {getattr(_monitoring.events, name) for name in _ABOUT_PLACES}

        @wraps(register)
        def register_callback(tool_id: int, event: int, func: Callable[..., Any] | None, /) -> Any:
            answer = _monitoring.DISABLE if event in once else None

            def call(code: CodeType, *arguments: Any) -> Any:
                return answer if code.co_filename.startswith(_OWN_CODE) else func(code, *arguments)  # type: ignore[misc]

            call.__wrapped__ = func  # type: ignore[attr-defined]
            former = register(tool_id, event, func if func is None else call)
            return getattr(former, "__wrapped__", former)

        _monitoring.register_callback = register_callback

    def _stopped_events() -> dict[int, int]:
        """The events that tools listen to, which are then disabled."""
        stopped = {
            tool: events for tool in _TOOLS if _tool_of(tool) is not None and (events := _events_of(tool))
        }
        for tool in stopped:
            _listen(tool, 0)
        return stopped

    def _set_events(events: dict[int, int]) -> None:
        for tool, wanted in events.items():
            if _tool_of(tool) is not None:
                _listen(tool, wanted)

else:

    def _hide_from_tools() -> None:
        """Does nothing without `sys.monitoring`."""

    def _stopped_events() -> dict[int, int]:
        return {}

    def _set_events(events: dict[int, int]) -> None:
        raise NotImplementedError("before Python 3.12 there are none")


_OWN_CODE: Final = os.path.dirname(cenote_worker.__file__) + os.sep  # noqa: PTH120  (without pathlib in a jail)
_ABOUT_PLACES: Final = (
    "PY_START",
    "PY_RESUME",
    "PY_RETURN",
    "PY_YIELD",
    "CALL",
    "LINE",
    "INSTRUCTION",
    "JUMP",
    "BRANCH",
)
"""Events of a place in code. A tool can disable them for that place."""

_TOOLS: Final = range(6)
"""Numbers of tools; others are the interpreter's own."""
