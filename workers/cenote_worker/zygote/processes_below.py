"""Which processes of a jail descend from which, where the kernel does and does not say so at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from cenote_worker.zygote import usage

_PARENT, _SESSION = 1, 3
"""Places in `/proc/PID/stat`, behind the name."""


def below(pid: int) -> set[int]:
    """All processes below one. gVisor has no lists of children, but says of each process whose child it is."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return set(usage.descendants(pid))
    of: dict[int, list[int]] = {}
    for child, fields in _all():
        of.setdefault(fields[_PARENT], []).append(child)
    found, parents = set[int](), [pid]
    while parents:
        parents = [child for parent in parents for child in of.get(parent, ())]
        found.update(parents)
    return found


def children(pid: int) -> set[int]:
    """Of a process, in the same way."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return set(usage.children(pid))
    return {child for child, fields in _all() if fields[_PARENT] == pid}


def in_sessions(leaders: Collection[int]) -> set[int]:
    """Processes of the sessions that these have begun; none where `/proc` does not show others."""
    return {pid for pid, fields in _all() if fields[_SESSION] in leaders}


def _all() -> Iterator[tuple[int, list[int]]]:
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (fields := _fields(entry.name)):
                yield int(entry.name), fields


def _fields(pid: str) -> list[int]:
    """As numbers, from the state on, which is 0; empty for a process that has ended, alive or a zombie."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        state, *rest = file.read().rpartition(b")")[2].split()
        return [] if state in (b"Z", b"X") else [0, *map(int, rest[:20])]
    return []
