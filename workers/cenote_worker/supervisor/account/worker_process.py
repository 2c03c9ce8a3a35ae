"""The namespace process as the kernel shows it to another process: cheap readings, none reported by the jail."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

PAGE: Final = os.sysconf("SC_PAGE_SIZE")

_SCHEDULER_CLOCK: Final = 2
_MAX_FILE: Final = 1024


def pid_of(pidfd: int) -> int:
    """The pid, as this process sees it; -1 when the process has ended."""
    with open(f"/proc/self/fdinfo/{pidfd}") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith("Pid:")), -1)


class WorkerProcess:
    """The child of a jail's warden. Readings of a process that has ended, or may not be seen, are 0."""

    def __init__(self, warden: int) -> None:
        self.warden = warden
        self.pid = -1
        self._io = self._sizes = -1
        self._watch(next(iter(self._children()), -1))

    def follow(self, pid: int) -> None:
        """Another child of the warden is the worker now. pid: its pid in the innermost pid namespace."""
        self.close()
        self.pid = -1
        self._watch(next((child for child in self._children() if _innermost_pid(child) == pid), -1))

    def cpu_seconds(self) -> float:
        """CPU time of all its threads; not of its children."""
        if self.pid < 0:
            return 0.0
        try:
            # The clock of another process, see clock_getcpuclockid(3): the complement of its pid, and a kind.
            return time.clock_gettime(~self.pid << 3 | _SCHEDULER_CLOCK)
        except OSError:
            return 0.0

    def written(self) -> int:
        """Bytes that it, and the children it has waited for, passed to `write`: to files, and to pipes."""
        if self._io < 0:
            return 0
        try:
            text = os.pread(self._io, _MAX_FILE, 0)
            return int(text[text.index(b"wchar: ") + 7 :].split(b"\n", 1)[0])
        except (OSError, ValueError):
            return 0

    def resident(self) -> int:
        """Bytes of memory that are private to it or shared with its ancestors, without mapped files."""
        try:
            return _anonymous(os.pread(self._sizes, _MAX_FILE, 0)) if self._sizes >= 0 else 0
        except OSError:
            return 0

    def close(self) -> None:
        for descriptor in (self._io, self._sizes):
            if descriptor >= 0:
                os.close(descriptor)
        self._io = self._sizes = -1

    def _children(self) -> list[int]:
        with suppress(OSError), open(f"/proc/{self.warden}/task/{self.warden}/children") as children:
            return [int(pid) for pid in children.read().split()]
        return []

    def _watch(self, pid: int) -> None:
        if pid < 0:
            return
        with suppress(OSError):
            self.pid = pid
            self._sizes = os.open(f"/proc/{self.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            self._io = os.open(f"/proc/{self.pid}/io", os.O_RDONLY | os.O_CLOEXEC)


def _innermost_pid(pid: int) -> int:
    """0 for a process that has ended."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    return 0


def anonymous_resident(pid: int) -> int:
    """Bytes of anonymous memory. Any process may read this, even of a process that has made itself unreadable."""
    with suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:
        return _anonymous(file.read())
    return 0


def _anonymous(statm: bytes) -> int:
    """0 for a process that has ended, whose file is then empty or all zeros."""
    fields = statm.split()
    return (int(fields[1]) - int(fields[2])) * PAGE if len(fields) > 2 else 0
