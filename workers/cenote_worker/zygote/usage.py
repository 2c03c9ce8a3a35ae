"""How much a jail uses, read from its own `/proc`."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def of_jail(copies: Collection[int] = ()) -> tuple[int, int]:
    """Proportional memory in bytes of the calling warden and all processes below it, and how many are below it.

    copies: pids that do not count as processes.
    """
    own = os.getpid()
    found = descendants(own) if Path(f"/proc/{own}/task/{own}/children").exists() else _all_but(own)
    return sum(map(_proportional_memory, [own, *found])), len(set(found).difference(copies))


def _all_but(pid: int) -> list[int]:
    """The other processes of this pid namespace: gVisor does not say whose child is whose."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and entry.name != str(pid)
    ]


def descendants(pid: int) -> list[int]:
    """All processes below one, parents before their children."""
    found: list[int] = []
    parents = [pid]
    while parents:
        parents = [child for parent in parents for child in children(parent)]
        found.extend(parents)
    return found


def children(pid: int) -> list[int]:
    """Children of all threads of a process; none when it ended meanwhile."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.extend(map(int, (thread / "children").read_bytes().split()))
    return found


def _proportional_memory(pid: int) -> int:
    """0 for a process that ended meanwhile. gVisor knows resident memory only, shared pages in full."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss:") or _kilobytes(f"/proc/{pid}/status", b"VmRSS:")


def private_memory(pid: int) -> int:
    """What a process shares with no other; 0 for one that has ended, or where the kernel does not say."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", b"Private_Dirty:")


def _kilobytes(path: str, name: bytes) -> int:
    """The bytes that a line of a file of `/proc` gives in kilobytes; 0 when there is no such file or line."""
    with suppress(OSError), open(path, "rb") as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def oom_kills(proc: int | str = "/proc") -> int:
    """How many processes this machine's kernel has killed for memory since it started; 0 when it does not say.

    proc: path or descriptor of a `/proc`.
    """
    folder = os.open(proc, os.O_PATH) if isinstance(proc, str) else proc
    with suppress(OSError), open(os.open("vmstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as lines:
        for line in lines:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0
