"""The timer that tells the warden of a cell that runs for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

FIRST: Final = 2_000_000
"""Nanoseconds: what ends sooner cannot pay much for its snapshot."""

EVERY: Final = 2_000_000
"""Nanoseconds between two pulses: a cell that sweeps pays for its snapshot all the while."""


@contextmanager
def beating(timer: int) -> Iterator[None]:
    """While a cell runs. timer: -1 for none."""
    if timer < 0:
        yield
        return
    _set(timer, FIRST, EVERY)
    try:
        yield
    finally:
        _set(timer, 0, 0)


def ring(timer: int) -> None:
    """Somebody waits for the warden, which may leave what it is told for a while. Not for a cell that shares memory
    with a copy: that would be weighed. timer: -1 for none.
    """
    if timer >= 0:
        _set(timer, 1, 0)


def _set(timer: int, first: int, every: int) -> None:
    try:
        libc.set_timer(timer, first, every)
    except OSError:
        return  # a cell has closed it
