"""The processes of a jail, read from its own `/proc`: their descent, what they use, and how to end orphans.
gVisor has no lists of children, but gives each process's parent. Orphans are processes left by a cell whose worker

died.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_worker.process.patient_wait import PatientWait


def jail_usage(copies: Collection[int] = ()) -> tuple[int, int]:
    """Proportional memory in bytes of the calling warden and all processes below it, and how many are below it.

    copies: pids that do not count as processes.
    """
    own = os.getpid()
    found = descendants(own) if Path(f"/proc/{own}/task/{own}/children").exists() else _all_but(own)
    return sum(map(_proportional_memory, [own, *found])), len(set(found).difference(copies))


def _all_but(pid: int) -> list[int]:
    """The other processes of this pid namespace: gVisor has no lists of children."""
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
    """Children of all threads of a process; none when the process has ended."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.extend(map(int, (thread / "children").read_bytes().split()))
    return found


def _proportional_memory(pid: int) -> int:
    """Bytes; 0 for a process that has ended. gVisor gives resident memory only, with shared pages in full."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss:") or _kilobytes(f"/proc/{pid}/status", b"VmRSS:")


def private_memory(pid: int) -> int:
    """Bytes that a process shares with no other; 0 for one that has ended, or where the kernel does not say."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", b"Private_Dirty:")


def _kilobytes(path: str, name: bytes) -> int:
    """Bytes, from a line of a `/proc` file that gives kilobytes; 0 when there is no such file or line."""
    with suppress(OSError), open(path, "rb") as lines:
        for line in lines:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def oom_kills(proc: int | str = "/proc") -> int:
    """The number of processes that this machine's kernel has killed for memory since it started; 0 if unknown.

    proc: path or descriptor of a `/proc`.
    """
    folder = os.open(proc, os.O_PATH) if isinstance(proc, str) else proc
    with suppress(OSError), open(os.open("vmstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as lines:
        for line in lines:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0


_PARENT, _SESSION = 1, 3
"""Field positions in `/proc/PID/stat`, after the name."""


def all_below(pid: int) -> set[int]:
    """All processes below one, where there are no lists of children, as in gVisor: by each process's parent."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return set(descendants(pid))
    of: dict[int, list[int]] = {}
    for child, fields in _all():
        of.setdefault(fields[_PARENT], []).append(child)
    found, parents = set[int](), [pid]
    while parents:
        parents = [child for parent in parents for child in of.get(parent, ())]
        found.update(parents)
    return found


def all_children(pid: int) -> set[int]:
    """Children of a process, in the same way."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return set(children(pid))
    return {child for child, fields in _all() if fields[_PARENT] == pid}


def in_sessions(leaders: Collection[int]) -> set[int]:
    """Processes in the sessions of these leaders; none where `/proc` does not show other processes."""
    return {pid for pid, fields in _all() if fields[_SESSION] in leaders}


def _all() -> Iterator[tuple[int, list[int]]]:
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (fields := _fields(entry.name)):
                yield int(entry.name), fields


def _fields(pid: str) -> list[int]:
    """The fields of `stat` as numbers, from the state on, which is 0; empty for a process that does not exist."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        state, *rest = file.read().rpartition(b")")[2].split()
        return [] if state in (b"Z", b"X") else [0, *map(int, rest[:20])]
    return []


PATIENCE: Final = 5.0
"""Seconds. A tree that forks faster than it is killed soon reaches its process limit, and then loses."""

_PAUSE: Final = 0.0005
_TICKS: Final = os.sysconf("SC_CLK_TCK")

StartTime = tuple[int, int]
"""Clock ticks since the machine's start, and the pid, which orders processes of one tick."""


def start_time_of(pid: int) -> StartTime:
    """When a process began; zeros for one that is gone."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19]), pid
    return 0, 0


def start_time_at(moment: int) -> StartTime:
    """A time before all processes that begin at or after that tick. moment: nanoseconds since the machine's start."""
    return moment * _TICKS // 10**9, 0


def end_younger(than: StartTime, spared: Collection[int], trees: Collection[int] = ()) -> bool:
    """Kills all processes below this one that began later than this time; False when there is no end to them.

    trees: processes that are spared with all below them. Orphans become children of this process, which reaps them:
    ended ones are not found again.
    """
    wait = PatientWait(PATIENCE)
    while True:
        kept = {*spared, *trees, *(pid for tree in trees for pid in all_below(tree))}
        found = [pid for pid in descendants(os.getpid()) if pid not in kept and start_time_of(pid) > than]
        if not found:
            return True
        if not wait.piece():
            return False
        _kill(found)
        time.sleep(_PAUSE)
        _collect(found)


def end_unattended(since: StartTime, spared: Collection[int]) -> None:
    """Kills children of this process that are not spared and began since then, with all below them."""
    own = os.getpid()
    wait = PatientWait(PATIENCE)
    while wait.piece():
        roots = [pid for pid in all_children(own) if pid not in spared and start_time_of(pid) >= since]
        found = [*roots, *(pid for root in roots for pid in all_below(root))]
        if not found:
            return
        _kill(found)
        time.sleep(_PAUSE)
        _collect(found)


def left_session(leader: int, pids: Iterable[int], seconds: float) -> bool:
    """Waits until none of these processes is in the session of this leader; False if one still is in the end.

    A pid is not free for a new process while it is the id of a session, also after its leader has ended.
    """
    wait = PatientWait(seconds)
    return all(_has_left(leader, pid, wait) for pid in pids)


def _has_left(leader: int, pid: int, wait: PatientWait) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        while os.getsid(pid) == leader:
            if not wait.piece():
                return False
            time.sleep(_PAUSE)
    return True


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _collect(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
