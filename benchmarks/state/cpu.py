"""CPU seconds of all processes that work for a contender, including those that have ended."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.runtime.process_tree import live_descendants

Result = TypeVar("Result")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Used:
    """CPU seconds of one process so far, in steps of 10 ms. ended: of its ended children and their descendants."""

    parent: int = 0
    own: float = 0.0
    ended: float = 0.0


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """Returns the result of the work, its wall seconds, and the CPU seconds of this process and its descendants.

    Listing processes takes some CPU itself, so this process's own clock is read inside of that.
    """
    before = _look()
    own, began = _own(), time.perf_counter()
    result = work()
    wall, own = time.perf_counter() - began, _own() - own
    return result, wall, own + used_between(before, _look())


def used_between(before: Mapping[int, Used], after: Mapping[int, Used]) -> float:
    """CPU seconds of all processes that exist afterwards.

    A parent that waits for a child is charged the child's whole CPU time, so the earlier part is subtracted. A
    child that no process waits for is lost, so nothing is subtracted for it.
    """
    total = 0.0
    for pid, now in after.items():
        then = before.get(pid, Used())
        gone = sum(
            one.own + one.ended for child, one in before.items() if one.parent == pid and child not in after
        )
        total += now.own - then.own + max(now.ended - then.ended - gone, 0.0)
    return total


def _own() -> float:
    """CPU seconds of this process, and of its ended children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _look() -> dict[int, Used]:
    found = {pid: _used(pid) for pid in live_descendants(os.getpid()) - {os.getpid()}}
    return {pid: used for pid, used in found.items() if used is not None}


def _used(pid: int) -> Used | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    words = stat.rpartition(")")[2].split()  # the name before ")" may hold anything
    user, system, ended_user, ended_system = (int(word) / TICKS for word in words[11:15])
    return Used(parent=int(words[1]), own=user + system, ended=ended_user + ended_system)
