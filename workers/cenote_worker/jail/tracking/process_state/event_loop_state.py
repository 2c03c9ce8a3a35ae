"""What runs in a worker besides the cell: the event loop's callbacks, and Cenote's own threads.

Callbacks wait in the loop for the next cell that awaits. Cenote's threads run no user code, so a step still counts as
the only thread that runs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_NEW: Final = (False, 0.1)
_loops = weakref.WeakSet[Any]()
"""One loop, unless it was closed."""


def serves_cells(loop: object) -> None:
    """Cells that await run in this loop from now on."""
    _loops.add(loop)


def is_there() -> bool:
    """Whether cells have awaited."""
    return bool(_loops)


def is_waiting() -> bool:
    """Whether there are callbacks that were not cancelled."""
    return any(not each._cancelled for loop in list(_loops) for each in (*loop._ready, *loop._scheduled))


def settings() -> object:
    """None while they are as in a new loop."""
    found = [(each._debug, each.slow_callback_duration) for each in list(_loops)]
    handed = len(called())
    return None if not handed and all(each == _NEW for each in found) else (found, handed)


def called() -> list[object]:
    """The user's functions in the loop: for unhandled errors, and to make tasks."""
    if not is_there():
        return []
    found = [part for loop in list(_loops) for part in (loop._exception_handler, loop._task_factory)]
    return [each for each in found if each is not None]


def awaits(parts: Iterable[CodeType]) -> bool:
    """Whether running this code runs the loop."""
    return any(part.co_flags & CO_COROUTINE for part in parts)


OWN: Final[set[int]] = set()
"""The ids of these threads, as `threading.get_ident` gives them."""

_get_ident = threading.get_ident


class OwnThread(threading.Thread):
    """Carries replies in, or output out. The user's trace and profile functions do not run in it."""

    def start(self) -> None:
        """Raises RuntimeError when no thread can be started."""
        # `threading` looks for both in the new thread, before anything there could turn them off.
        traced, profiled = threading._trace_hook, threading._profile_hook  # type: ignore[attr-defined]
        if traced is None and profiled is None:
            super().start()
            return
        self._has_begun = threading.Event()
        threading._trace_hook = threading._profile_hook = None  # type: ignore[attr-defined]
        try:
            super().start()
            self._has_begun.wait()
        finally:
            threading._trace_hook, threading._profile_hook = traced, profiled  # type: ignore[attr-defined]

    def run(self) -> None:
        OWN.add(_get_ident())
        if (begun := getattr(self, "_has_begun", None)) is not None:
            begun.set()
        try:
            super().run()
        finally:
            OWN.discard(_get_ident())
