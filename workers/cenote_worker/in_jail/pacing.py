"""Many short lines, passed on together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.tracking.own_threads import OwnThread

__builtins__ = BUILTINS

PAUSE = 0.005
"""Seconds that a line waits for others."""

_LOOKS = 550
_QUICK_LOOKS = 50
"""At a thread that has ended and is the kernel's still. The others have a millisecond between two: a thousand times
what it takes on an idle machine."""

_Thread, _Event = OwnThread, threading.Event
_sleep, _exists = time.sleep, os.path.exists


class Pacer:
    """A thread that flushes soon after it was nudged. It lives for one cell that prints a lot.

    Each hand-over of a line wakes the supervisor; a cell that prints a hundred thousand of them would spend
    seconds on that alone. A thread and not a clock reading in `write`: the last line before a long silence must
    be passed on too.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._nudged, self._stopped = _Event(), _Event()
        self._thread = _Thread(target=self._work, name="output", daemon=True)

    def start(self) -> bool:
        """False when no thread can be had: the jail's limit is reached."""
        try:
            self._thread.start()
        except RuntimeError:
            return False
        return True

    def nudge(self) -> None:
        if not self._nudged.is_set():
            self._nudged.set()

    def stop(self) -> None:
        """Ends the thread. What is not flushed yet is left to the caller."""
        self._stopped.set()
        self._nudged.set()
        self._thread.join(1)
        _await_end(self._thread.native_id)

    def _work(self) -> None:
        while True:
            self._nudged.wait()
            if self._stopped.wait(PAUSE):
                return
            self._nudged.clear()
            if self._stopped.is_set():  # since the last look: its nudge may be the one that was just cleared
                return
            try:
                self._flush()
            except Exception:  # the sink is gone; the cell's own writes will tell
                return


def _await_end(thread: int | None) -> None:
    """Before Python 3.13 a joined thread is the kernel's for a moment more, and a fork then warns of it."""
    for look in range(_LOOKS):
        if not _exists(f"/proc/self/task/{thread}"):
            return
        _sleep(0 if look < _QUICK_LOOKS else 0.001)
