"""Questions whose answers are large, and Python's collector of cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cenote_security.collector import collector_off

_MANY: Final = 1_000
"""Steps. Fewer make no work for the collector that would be felt."""

_MUCH: Final = 50_000
"""Containers, of one or two thousand steps."""


@contextmanager
def no_collections(steps: int) -> Iterator[None]:
    """Tens of thousands of new containers, none of them garbage, would have the collector go through the whole
    history several times: that takes longer than all the rest.
    """
    with collector_off(stays=steps >= _MANY):
        yield


@contextmanager
def one_collection() -> Iterator[None]:
    """The same where all of it stays, for whoever reads a history. If it was much, the collector goes through it once
    at the end, which is how it hears of it: it would do so soon, in the middle of a question.
    """
    with collector_off(stays=False):
        yield
    if gc.isenabled() and gc.get_count()[0] > _MUCH:
        gc.collect()
