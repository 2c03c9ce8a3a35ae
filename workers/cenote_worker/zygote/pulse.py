"""What a running cell pays for the copy that was made before it, seen by the warden while it runs.

The worker starts a timer with each cell and stops it at its end: a short cell costs the warden nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cenote_worker.in_jail.snapshots.pulse import EVERY, FIRST
from cenote_worker.zygote.counters import Counters
from cenote_worker.zygote.descriptors import PULSE
from cenote_worker.zygote.sharing import areas, shared_of
from cenote_worker.zygote.snapshot_tax import SnapshotTax

_NANOSECONDS: Final = 10**9
_YOUNG: Final = 0.03
"""Seconds for which a cell is looked at with each pulse: a look costs a tenth of a millisecond."""

_BETWEEN: Final = 0.005
"""Seconds between two looks at an older one."""

_LATE: Final = 10
"""So many intervals without a pulse are the end of a cell: the next pulse is of another. Those that came while this
process had no processor are counted by the timer."""

_COUNTER: Final = 8
"""Bytes of what a timer tells."""


class Pulse:
    """Follows one worker after the other, and one cell after the other."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._tax: SnapshotTax | None = None
        self._began = self._waited = self._last = self._looked = 0.0
        self._waited_before: float | None = None
        """What it had waited when its copy was made, while no cell has been seen since."""
        self._areas: tuple[int, Sequence[range]] | None = None
        """Of the copy that was looked at last, with its pid."""

    def copied(self, worker: int) -> None:
        """A copy of it was made just now. Until its next cell begins it does not work."""
        sample = self._counters.sample(worker, 0.0)
        self._tax = None if sample is None else SnapshotTax(sample)
        self._last, self._areas = 0.0, None
        self._waited_before = self._counters.waited(worker)

    def beat(self, worker: int, *, shares: bool) -> bool:
        """A cell has been running for a while. True when its copies may cost too much: see `is_too_much`.

        shares: whether there is a copy that can be given up.
        """
        beats = _beats()
        now = time.monotonic()
        if now - self._last > (beats + _LATE) * EVERY / _NANOSECONDS:
            begun = (FIRST + (beats - 1) * EVERY) / _NANOSECONDS
            waited, before = self._counters.waited(worker), self._waited_before
            # Whoever hears late of a cell, since the machine is busy, has to know what it has waited until then.
            self._began, self._waited_before = now - begun, None
            self._waited = waited if before is None else max(before, waited - begun)
        self._last = now
        if not shares or (now - self._began > _YOUNG and now - self._looked < _BETWEEN):
            return False
        self._looked = now
        elapsed = now - self._began - (self._counters.waited(worker) - self._waited)
        sample = self._counters.sample(worker, max(elapsed, 0.0))
        if sample is None:
            return False
        if self._tax is None:
            self._tax = SnapshotTax(sample)
        return self._tax.see(sample) == "check"

    def is_too_much(self, worker: int, copy: int) -> bool:
        """Whether the copies are to be given up. copy: the newest of them. For a cell that is suspected."""
        if self._tax is None:
            return False
        if self._areas is None or self._areas[0] != copy:
            self._areas = copy, areas(copy)
        return self._tax.is_too_much(shared_of(self._areas[1], worker))


def _beats() -> int:
    """How many there were since this was asked last."""
    with suppress(BlockingIOError):
        return int.from_bytes(os.read(PULSE, _COUNTER), sys.byteorder)
    return 1
