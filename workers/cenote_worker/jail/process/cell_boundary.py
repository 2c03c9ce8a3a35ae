"""The boundary between a user's program and the kernel: what acts by itself acts in cells only.

SIGINT stops a cell, and nothing but a cell. Signal handlers, destructors and callbacks of the collector, audit hooks,
profilers and timers run wherever the interpreter happens to be. One that raises in the kernel's code would break the
kernel; one that ends the process, or never ends, would take along a state that is not copied yet. So all of them
wait for the next cell. What goes wrong with them is shown there, and the cell runs all the same.
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
    """Waits for it, until an interrupt comes: `future.result()` would make a RuntimeError of one that comes as the
    wait begins, since its condition gives back a lock then that it does not hold.
    """
    done = _new_lock()
    done.acquire()
    future.add_done_callback(lambda _future: done.release())
    done.acquire()
    return future.result()


class InterruptHandler:
    """The handler of SIGINT: raises KeyboardInterrupt while armed, takes a note otherwise.

    armed: whether code of a cell is running.
    cancel: set while the event loop runs; asked first, and says whether it dealt with the interrupt.
    """

    def __init__(self) -> None:
        self.armed = False
        self._heard = False
        self.cancel: Callable[[], bool] | None = None
        self._handler = self._on_signal

    def install(self) -> None:
        """Makes this the process's handler again if a cell has put another in its place."""
        if _get_handler(_SIGINT) is not self._handler:
            _set_handler(_SIGINT, self._handler)

    def forget(self) -> None:
        """What was heard was meant for another process."""
        self.armed = self._heard = False
        self.cancel = None

    def begin_cell(self, *, after_interrupt: bool) -> None:
        """Arms. Raises KeyboardInterrupt if an interrupt came before the cell could begin.

        after_interrupt: what was heard may as well have come late, and be meant for the cell before.
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
"""For the thread of a watchdog to be gone. It takes microseconds, unless it was gone before."""

Note = Callable[[str], None]
Hook = Callable[[str, tuple[Any, ...]], object]


class BetweenCells:
    """Of the one kernel of a process. is_open: whether the user's program runs.

    Trace and profile functions, and a recursion limit below the original one, end with their cell.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._limit = _get_limit()
        self._trace, self._profile = _gettrace(), _getprofile()
        self._signals: DeferredSignals | None = None
        """None where the process is not the kernel's alone."""
        self._is_collecting: bool | None = None
        """Whether the user's program has the collector on, while the door is closed."""
        self._events: dict[int, int] = {}
        """Of `sys.monitoring`, by the number of the tool, likewise."""
        self._main = _get_ident()
        self._has_watchdog = False
        """Whether a cell has started one and has not cancelled it."""

    def guard(self) -> None:
        """The process is the kernel's alone: also what would be noticed outside of it is held back from now on."""
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
        """The kernel goes on. Whatever is under way may raise out of this: then it is to be called again."""
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
        """Nothing else shows that the thread of one is there."""

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
        """In the place of `sys.addaudithook`: hooks cannot be removed, and whatever one raises ends the call."""

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
    """Whether there was one: a thread that prints where all others are after some time, and may end the process.
    Waits for its end: the thread goes on for a moment when it has been cancelled, and no copy is made beside it.
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
        """What `sys.monitoring` tells tools of leaves out the kernel's code, which runs before and after a cell's."""
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
        """What tools listen to, which they do no longer."""
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
        """There is no `sys.monitoring`."""

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
"""Events of a place in code. A tool is not called again for one if it says so."""

_TOOLS: Final = range(6)
"""Numbers of tools; others are the interpreter's own."""
