"""Python's collector of cyclic garbage, off while much is made that stays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FEW: Final = 1_000
"""Objects: Python 3.12 sets some hundreds aside itself as it starts. Whoever freezes does so with all there are."""


class _Off:
    """Of this process, whose threads share one collector: it is on again when the last of them is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._was_on = gc.isenabled()
                gc.disable()
            self._users += 1

    def end(self, *, stays: bool) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if stays and gc.get_freeze_count() < _FEW:
                gc.freeze()
                gc.unfreeze()
            if self._was_on:
                gc.enable()


_OFF = _Off()


@contextmanager
def collector_off(*, stays: bool) -> Iterator[None]:
    """It goes through millions of containers again and again while they are built, none of them garbage, and holds
    all other threads up meanwhile. Several threads may be inside at once.

    stays: what was made is much. Afterwards the collector would go through that thrice, so it is passed on to what it
    looks at last, as it would be in the end, unless somebody has frozen others.
    """
    _OFF.begin()
    try:
        yield
    finally:
        _OFF.end(stays=stays)
