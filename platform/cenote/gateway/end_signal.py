"""SIGTERM and SIGINT as something that can be waited for, together with other descriptors."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class EndSignal:
    """Readable once either has come. Made on the main thread, and not more than once.

    A `threading.Event` that a handler sets can hang: the handler runs on the thread that waits, and may do so while
    that holds the event's lock.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._came)

    def fileno(self) -> int:
        return self._reading

    def wait(self, patience: float | None = None) -> bool:
        """Whether it has come; after that many seconds at the latest."""
        return bool(select.select([self], [], [], patience)[0])

    def _came(self, *_: object) -> None:
        with suppress(BlockingIOError):  # it has come often
            os.write(self._writing, b"\0")
