"""Python's collector of cyclic garbage, off while much is made that stays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FEW: Final = 1_000
"""Frozen objects: Python 3.12 freezes some hundreds itself at its start. A program that freezes has more by far."""


class _Off:
    """State of this process, whose threads share one collector: it is on again when the last of them is done."""

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
    """Turns the collector off: it would walk through millions of containers again and again while they are built,
    none of them garbage, and block all other threads meanwhile. Several threads may be inside at once.

    stays: many objects were made, which live on. The collector would walk through them three times, so they are moved
    to its oldest generation at once, unless the program has frozen objects itself.
    """
    _OFF.begin()
    try:
        yield
    finally:
        _OFF.end(stays=stays)
