"""Reads what child processes and C code in a jail write to their descriptors 1 and 2."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable

TURN = 256 * 1024
"""Bytes read before other jails have their turn."""


class PipeReader:
    """Non-blocking reads, decoded as UTF-8; anything else becomes replacement characters."""

    def __init__(self, descriptor: int, deliver: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.open = True
        self._deliver = deliver
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> None:
        """Delivers what is there. `open` turns false at the end."""
        taken = 0
        while self.open and taken < TURN:
            try:
                data = os.read(self.descriptor, 64 * 1024)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.open = bool(data)
            taken += len(data)
            text = self._decoder.decode(data, final=not data)
            if text:
                self._deliver(text)
