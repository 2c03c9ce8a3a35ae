"""Questions whose answers are large, and Python's collector of cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MANY: Final = 1_000
"""Steps. Fewer make no work for the collector that would be felt."""

_FEW: Final = 1_000
"""Objects: Python 3.12 sets some hundreds aside itself as it starts. Whoever freezes does so with all there are."""

_MUCH: Final = 50_000
"""Containers, of one or two thousand steps."""


@contextmanager
def no_collections(steps: int) -> Iterator[None]:
    """Tens of thousands of new containers, none of them garbage, would have the collector go through the whole
    history several times: that takes longer than all the rest. Afterwards it would go through them once: they are
    passed on to those that it looks at last, as they would be in the end, unless somebody has frozen others.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if steps >= _MANY and gc.get_freeze_count() < _FEW:
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


@contextmanager
def one_collection() -> Iterator[None]:
    """The same where all of it stays, for whoever reads a history. If it was much, the collector goes through it once
    at the end, which is how it hears of it: it would do so soon, in the middle of a question.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
            if gc.get_count()[0] > _MUCH:
                gc.collect()
