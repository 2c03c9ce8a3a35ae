"""CPU seconds of everything that works for a keeper: what has come and gone meanwhile included."""

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
    """CPU seconds of one process so far, in steps of 10 ms. ended: of its children that have ended, and theirs."""

    parent: int = 0
    own: float = 0.0
    ended: float = 0.0


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What the work gives, its wall seconds, and the CPU seconds of this process and all below it.

    Looking through the processes takes some CPU itself, so this process's own clock is read inside of that.
    """
    before = _look()
    own, began = _own(), time.perf_counter()
    result = work()
    wall, own = time.perf_counter() - began, _own() - own
    return result, wall, own + used_between(before, _look())


def used_between(before: Mapping[int, Used], after: Mapping[int, Used]) -> float:
    """By all of those that are there afterwards.

    Who waits for a child gets all that the child has ever used: what that was before is no part of it. A child that
    nobody waits for is lost, so that nothing may be taken off for it.
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
    """Of this process, and of its children that have ended."""
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
