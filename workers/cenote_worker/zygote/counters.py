"""What the kernel has counted of one process after the other, from descriptors that stay open.

Opening such a file takes four times as long as reading it, and the warden looks after each cell.
"""

from __future__ import annotations

import os
from typing import Final

from cenote_worker.zygote.snapshot_tax import Sample

_MOST: Final = 4096
"""Bytes: more than any of them has."""

_NANOSECONDS: Final = 10**9


class Counters:
    """Of one worker at a time: another one closes what was open of the one before."""

    def __init__(self) -> None:
        self._pid = 0
        self._open: dict[str, int] = {}

    def sample(self, pid: int, elapsed: float) -> Sample | None:
        """None for a process that is gone."""
        try:
            stat = self._read(pid, "stat").rpartition(b")")[2].split()
            statm = self._read(pid, "statm").split()
            return Sample(elapsed=elapsed, faults=int(stat[7]), resident=int(statm[1]) - int(statm[2]))
        except (OSError, ValueError, IndexError):
            return None

    def waited(self, pid: int) -> float:
        """Seconds that it was ready to run and had no processor; 0 where the kernel does not count them."""
        try:
            return int(self._read(pid, "schedstat").split()[1]) / _NANOSECONDS
        except (OSError, ValueError, IndexError):
            return 0.0

    def _read(self, pid: int, name: str) -> bytes:
        if pid != self._pid:
            self.close()
            self._pid = pid
        if name not in self._open:
            self._open[name] = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(self._open[name], _MOST, 0)
        except OSError:  # it has ended: a later one may get its number
            self.close()
            raise

    def close(self) -> None:
        opened, self._open = self._open, {}
        for descriptor in opened.values():
            os.close(descriptor)
