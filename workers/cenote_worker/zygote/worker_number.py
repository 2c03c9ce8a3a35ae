"""The number of the worker's process, which programs may have kept: one that takes its place has the same.

In the first pid namespace that a jail has to itself, the kernel gives the next process the next number, and a file
says which one it gave last (`ns_last_pid`, see the kernel's Documentation/admin-guide/sysctl/kernel.rst). The number
is free when the worker has died. Whoever forks in between gets it first; then the worker has another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

_MAX_TEXT: Final = 32


@dataclass(frozen=True, slots=True)
class WorkerNumber:
    """pid: of the first worker. last_pid: see Level; -1 where numbers cannot be chosen."""

    pid: int
    last_pid: int = -1

    @contextmanager
    def next(self) -> Iterator[None]:
        """The next process that begins has the worker's number; those after it go on from where they were, so that of
        two that began in one tick of the clock the one with the higher number is the younger.
        """
        last = self._read()
        if last is None:
            yield
            return
        self._write(self.pid - 1)
        try:
            yield
        finally:
            self._write(last)

    def _read(self) -> int | None:
        if self.last_pid < 0:
            return None
        try:
            return int(os.pread(self.last_pid, _MAX_TEXT, 0))
        except (OSError, ValueError):
            return None

    def _write(self, last: int) -> None:
        with suppress(OSError):
            os.pwrite(self.last_pid, str(last).encode(), 0)
