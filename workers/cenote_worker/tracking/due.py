"""The event loop of the cells: callbacks that wait there for the next cell that awaits, and how it is set."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any, Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_NEW: Final = (False, 0.1)
_loops = weakref.WeakSet[Any]()
"""One, unless it was closed."""


def serves_cells(loop: object) -> None:
    """From now on cells that await run in this loop."""
    _loops.add(loop)


def is_there() -> bool:
    """Whether cells have awaited."""
    return bool(_loops)


def is_waiting() -> bool:
    """Whether there are any that nobody has cancelled."""
    return any(not each._cancelled for loop in list(_loops) for each in (*loop._ready, *loop._scheduled))


def settings() -> object:
    """None while they are what they are in a new loop."""
    found = [(each._debug, each.slow_callback_duration) for each in list(_loops)]
    handed = len(called())
    return None if not handed and all(each == _NEW for each in found) else (found, handed)


def called() -> list[object]:
    """What the user has put there: for errors that nobody handles, and to make tasks."""
    if not is_there():
        return []
    found = [part for loop in list(_loops) for part in (loop._exception_handler, loop._task_factory)]
    return [each for each in found if each is not None]


def awaits(parts: Iterable[CodeType]) -> bool:
    """Whether running this code runs the loop."""
    return any(part.co_flags & CO_COROUTINE for part in parts)
