"""SIGINT as the way to stop a cell, and nothing but a cell."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

from cenote_worker.in_jail.pristine import BUILTINS

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


class Interrupts:
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
