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


def oom_kills() -> int:
    """How many processes this machine's kernel has killed for memory since it started; 0 when it does not say."""
    with suppress(OSError), open("/proc/vmstat", "rb") as lines:
        for line in lines:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0
