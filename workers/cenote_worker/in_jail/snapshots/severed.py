"""What cannot be in two processes at once: pipes and sockets. A copy lets go of them, or their far ends would never
see the end that the worker gives them."""

from __future__ import annotations

import os
import resource
import socket
import stat
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

MAX_NAMES: Final = 20
"""Names that are told. More say nothing more."""


def sever(keep: Collection[int]) -> frozenset[int]:
    """Puts a dead end in the place of each pipe and socket of this process but those of `keep`. Gives which.

    The number stays taken: an object that still holds it would else close, or write to, whatever came to have it.
    """
    found = frozenset(fd for fd in _descriptors() if fd not in keep and _is_link(fd))
    if not found:
        return found
    dead, gone = socket.socketpair()
    gone.close()
    for descriptor in found:
        os.dup2(dead.fileno(), descriptor, inheritable=False)
    dead.close()
    return found


def severed_names(namespace: Mapping[str, object], severed: Collection[int]) -> list[str]:
    """Variables that were something with such a descriptor, a thread, or a process; at most MAX_NAMES."""
    kinds: list[type] = [threading.Thread]
    if "subprocess" in sys.modules:
        kinds.append(sys.modules["subprocess"].Popen)
    names = []
    for name, value in list(namespace.items()):
        if type(value) in kinds or (severed and _descriptor(value) in severed):
            names.append(name)
    return names[:MAX_NAMES]


def _descriptors() -> Iterable[int]:
    """Numbers that may be descriptors of this process."""
    try:
        return map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:  # with `landlock`, where a copy may not read about itself
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _descriptor(value: object) -> int:
    """Of an object of the standard library that has one; -1 for any other, which is not asked: it may do anything."""
    if type(value).__module__ not in ("socket", "_io", "_socket", "ssl", "multiprocessing.connection"):
        return -1
    with suppress(Exception):
        return int(value.fileno())  # type: ignore[attr-defined]
    return -1


def _is_link(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)
