"""What of a process a copy of it does not have for itself, in words for whoever goes back to one."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from cenote_worker.in_jail.forking.memory_map import MemoryMap
from cenote_worker.in_jail.forking.open_files import descriptors
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_KINDS = {
    "socket": "a socket: the other end has seen everything since",
    "pipe": "a pipe: what was read from it since is gone",
    "memory": "memory shared with other processes, which is as it was left last",
}

_fstat = os.fstat


def left_behind(ours: Collection[int] = ()) -> tuple[str, ...]:
    """One line per kind of thing. ours: descriptors that belong to the worker itself."""
    found = Counter(_kind(number) for number in descriptors() if number not in ours)
    found["memory"] = len(MemoryMap().shared_with_copies())
    return tuple(f"{text} ({found[kind]})" for kind, text in _KINDS.items() if found[kind])


def _kind(number: int) -> str:
    with suppress(OSError):
        mode = _fstat(number).st_mode
        return "socket" if stat.S_ISSOCK(mode) else "pipe" if stat.S_ISFIFO(mode) else ""
    return ""
