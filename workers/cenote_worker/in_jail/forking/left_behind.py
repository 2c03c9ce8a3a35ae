"""What of a process a copy of it does not have for itself, in words for whoever goes back to one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from cenote_worker.in_jail.forking.memory_map import MemoryMap
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_FOLDER = "/proc/self/fd"
_KINDS = {
    "socket": "a socket: the other end has seen everything since",
    "pipe": "a pipe: what was read from it since is gone",
    "shared": "memory shared with other processes, which is as it was left last",
}

_listdir, _readlink = os.listdir, os.readlink


def left_behind(ours: Collection[int] = ()) -> tuple[str, ...]:
    """One line per kind of thing. ours: descriptors that belong to the worker itself."""
    found = Counter(
        kind for name in _listdir(_FOLDER) if int(name) not in ours and (kind := _kind(name)) in _KINDS
    )
    found["shared"] = len(MemoryMap().shared_with_copies())
    return tuple(f"{_KINDS[kind]} ({number})" for kind, number in found.items() if number)


def _kind(name: str) -> str:
    with suppress(OSError):
        return _readlink(f"{_FOLDER}/{name}").partition(":")[0]
    return ""
