"""What a cell that took its worker with it has left running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from cenote_worker.patient_wait import PatientWait
from cenote_worker.zygote.processes_below import below, children
from cenote_worker.zygote.usage import descendants

PATIENCE: Final = 5.0
"""Seconds. A tree that forks faster than it is killed is at its limit of processes soon, and then loses."""

_PAUSE: Final = 0.0005
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Birth = tuple[int, int]
"""Clock ticks since the machine's start, and the pid, which tells those of one tick apart."""


def birth_of(pid: int) -> Birth:
    """When a process began; the beginning of time for one that is gone."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19]), pid
    return 0, 0


def birth_at(moment: int) -> Birth:
    """Before all that begins then, or in the same tick. moment: nanoseconds since the machine's start."""
    return moment * _TICKS // 10**9, 0


def end_younger(than: Birth, spared: Collection[int], trees: Collection[int] = ()) -> bool:
    """Kill all processes below this one that began later; False when they do not come to an end.

    trees: processes that are spared with all below them. Orphans come to this process, which collects them: what has
    ended is not found again.
    """
    wait = PatientWait(PATIENCE)
    while True:
        kept = {*spared, *trees, *(pid for tree in trees for pid in below(tree))}
        found = [pid for pid in descendants(os.getpid()) if pid not in kept and birth_of(pid) > than]
        if not found:
            return True
        if not wait.piece():
            return False
        _kill(found)
        time.sleep(_PAUSE)
        _collect(found)


def end_unattended(since: Birth, spared: Collection[int]) -> None:
    """Kill children of this process that are not spared and began since, with all below them."""
    own = os.getpid()
    wait = PatientWait(PATIENCE)
    while wait.piece():
        roots = [pid for pid in children(own) if pid not in spared and birth_of(pid) >= since]
        found = [*roots, *(pid for root in roots for pid in below(root))]
        if not found:
            return
        _kill(found)
        time.sleep(_PAUSE)
        _collect(found)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _collect(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
