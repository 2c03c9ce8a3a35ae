"""Deeds on their way from the process where they were done to the one that writes them down.

Whoever reads says up to which number it has written them down; until then they are kept, so that none is lost with
a reader, and none has two numbers. Of what does not fit any more the oldest go, and that they went is told.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Final

from cenote_worker.counts import Counts
from cenote_worker.tenancy.deeds import Batch, Deed

ROOM: Final = 20_000
"""Deeds, of about a kilobyte each: what a busy host does in some ten seconds without a reader."""

BATCH: Final = 500


class Trail:
    """Of one process. source: names it, unlike any other that there ever was. Thread-safe."""

    def __init__(self, source: str, room: int = ROOM) -> None:
        self.source = source
        self.counts = Counts()
        """Of the same process. They go out with the deeds."""
        self._room = room
        self._lock = threading.Lock()
        self._deeds: deque[Deed] = deque()
        self._first = 1
        """The number of the first one that is kept."""
        self._lost = 0

    def note(self, deed: Deed) -> None:
        with self._lock:
            self._deeds.append(deed)
            if len(self._deeds) > self._room:
                self._deeds.popleft()
                self._first += 1
                self._lost += 1

    def read(self, written: int = 0) -> Batch:
        """What comes next. written: the number up to which all is written down, and is kept here no longer."""
        with self._lock:
            if written >= self._first - 1:
                self._lost = 0
            while self._deeds and self._first <= written:
                self._deeds.popleft()
                self._first += 1
            return Batch(
                source=self.source,
                first=self._first,
                deeds=tuple(islice(self._deeds, BATCH)),
                lost=self._lost,
                more=len(self._deeds) > BATCH,
                counts=self.counts.snapshot(),
            )
