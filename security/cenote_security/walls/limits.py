"""Per-process limits of a jail. What they cannot bound (memory files, many small processes) is said in each line.

A limit on the whole jail belongs to a control group or to whoever watches the tree from outside; it can be
added beside these without touching them.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

OPEN_FILES: Final = 4096
"""Descriptors per process. Enough for data work; below what makes `close` loops slow."""

LOCKED_BYTES: Final = 64 * 2**10
"""What locked memory a process may have: a jail must not pin the host's RAM."""

PENDING_SIGNALS: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """memory, disk: bytes. processes: processes and threads at once, the warden not counted."""

    memory: int
    processes: int
    disk: int


def table(limits: Limits) -> dict[int, tuple[int, int]]:
    """`{RLIMIT_*: (soft, hard)}`. Pure.

    RLIMIT_DATA counts private writable memory, mappings included. RLIMIT_AS would count reservations too, and
    numpy, Arrow and thread stacks reserve far more than they use. Memory files escape both.
    RLIMIT_FSIZE bounds one file. A memory file is a file to it, and a value that leaves the jail may be as large as
    the jail's memory.
    RLIMIT_NPROC counts per user *and user namespace* when set after the namespace is made: so it is per jail.
    """
    one = limits.processes + 1
    size = max(limits.disk, limits.memory)
    return {
        resource.RLIMIT_DATA: (limits.memory, limits.memory),
        resource.RLIMIT_FSIZE: (size, size),
        resource.RLIMIT_NPROC: (one, one),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (LOCKED_BYTES, LOCKED_BYTES),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_RTPRIO: (0, 0),
        resource.RLIMIT_NICE: (0, 0),
        resource.RLIMIT_SIGPENDING: (PENDING_SIGNALS, PENDING_SIGNALS),
    }


def apply(limits: Limits) -> None:
    """Set the limits for this process and all that it starts; never above what it has now."""
    for kind, (soft, hard) in table(limits).items():
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
