"""Callbacks that wait in the event loop of the cells for the next cell that awaits, whoever put them there."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

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


def awaits(parts: Iterable[CodeType]) -> bool:
    """Whether running this code runs the loop."""
    return any(part.co_flags & CO_COROUTINE for part in parts)
