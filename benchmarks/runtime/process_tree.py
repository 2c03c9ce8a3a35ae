"""Memory of this process and its descendants, read from /proc.

PSS (proportional set size) counts a page that n processes share as 1/n in each, so that the sum over a tree
is what the tree costs. Taken over the whole tree before and after, it also sees that a new process makes the
pages of older ones cheaper.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CLEAR_PEAK = "5"  # proc(5): writing 5 to clear_refs resets the peak resident set size


class MemoryUnreadableError(Exception):
    """A process of the tree does not allow this one to read its memory figures; run the benchmark as root."""


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose parent ends, so that none leaves the tree."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(parents: Mapping[int, int], root: int) -> set[int]:
    """`root` and all below it, given each process's parent."""
    found = {root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def live_descendants(root: int) -> set[int]:
    """`root` and every process below it that exists now, including zombies."""
    return descendants(all_parents(), root)


def tree_pss() -> int:
    """Bytes of PSS of this process and its descendants. Raises MemoryUnreadableError."""
    return sum(_pss(pid) for pid in live_descendants(os.getpid()))


def available_memory() -> int:
    """Bytes that the machine can still allocate; its change includes kernel memory, which PSS does not."""
    return _field(Path("/proc/meminfo").read_text(), "MemAvailable")


def total_memory() -> int:
    """Bytes of memory of this machine."""
    return _field(Path("/proc/meminfo").read_text(), "MemTotal")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)


def peak_memory() -> int:
    """Peak memory of this process in bytes since `forget_peak`."""
    return _field(Path("/proc/self/status").read_text(), "VmHWM")


def all_parents() -> dict[int, int]:
    """Each process of the machine with its parent, including zombies."""
    return {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])  # the name before ")" may hold anything


def _pss(pid: int) -> int:
    try:
        return _field(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError as error:
        raise MemoryUnreadableError(f"process {pid}: {error.strerror}") from error


def _field(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        if key == name:
            return int(rest.split()[0]) * 1024
    raise KeyError(name)
