"""How much a jail uses, read from its own `/proc`."""

from __future__ import annotations

import os
from contextlib import suppress


def of_jail() -> tuple[int, int]:
    """Proportional memory in bytes of all processes, and how many there are, the warden counted in neither."""
    me = str(os.getpid())
    processes = [name for name in os.listdir("/proc") if name.isdigit() and name != me]
    return sum(_proportional_memory(pid) for pid in processes), len(processes)


def _proportional_memory(pid: str) -> int:
    """0 for a process that ended meanwhile."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as lines:
        for line in lines:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def oom_kills(proc: int | str) -> int:
    """How many processes this machine's kernel has killed for memory since it started; 0 when it does not say.

    proc: path or descriptor of a `/proc`.
    """
    folder = os.open(proc, os.O_PATH) if isinstance(proc, str) else proc
    with suppress(OSError), open(os.open("vmstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as lines:
        for line in lines:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0
