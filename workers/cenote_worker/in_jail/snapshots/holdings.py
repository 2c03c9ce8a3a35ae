"""What of a process's descriptors a copy of it can have.

Pipes and sockets cannot be in two processes at once: a copy lets go of them, or their far ends would never see the
end that the worker gives them. Files are shared, and with them the place where the next read begins: it is noted.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

MAX_NAMES: Final = 20
"""Names that are told. More say nothing more."""

_MODULES: Final = ("socket", "_io", "_socket", "ssl", "multiprocessing.connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Descriptors of a process at one moment. links: pipes and sockets. positions: of its files."""

    links: frozenset[int] = frozenset()
    positions: Mapping[int, int]

    @classmethod
    def now(cls, keep: Collection[int]) -> Holdings:
        """Of this process, but those of `keep`."""
        links, positions = set(), {}
        for descriptor in _descriptors():
            with suppress(OSError):
                mode = os.fstat(descriptor).st_mode
                if stat.S_ISREG(mode):
                    positions[descriptor] = os.lseek(descriptor, 0, os.SEEK_CUR)
                elif (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)) and descriptor not in keep:
                    links.add(descriptor)
        return cls(links=frozenset(links), positions=positions)

    def sever(self) -> None:
        """Puts a dead end in the place of each link.

        The number stays taken: an object that still holds it would else close, or write to, whatever came to have it.
        """
        if not self.links:
            return
        dead, gone = socket.socketpair()
        gone.close()
        for descriptor in self.links:
            os.dup2(dead.fileno(), descriptor, inheritable=False)
        dead.close()

    def restore(self) -> None:
        """Puts each file back to where it was."""
        for descriptor, position in self.positions.items():
            with suppress(OSError):
                os.lseek(descriptor, position, os.SEEK_SET)


def severed_names(namespace: Mapping[str, object], links: Collection[int]) -> list[str]:
    """Variables that were something with such a descriptor, a thread, or a process; at most MAX_NAMES."""
    kinds: list[type] = [threading.Thread]
    if "subprocess" in sys.modules:
        kinds.append(sys.modules["subprocess"].Popen)
    names = [name for name, value in list(namespace.items()) if type(value) in kinds or _has(value, links)]
    return names[:MAX_NAMES]


def _has(value: object, links: Collection[int]) -> bool:
    """Only an object of the standard library is asked for its descriptor: any other may do anything."""
    if not links or type(value).__module__ not in _MODULES:
        return False
    with suppress(Exception):
        return value.fileno() in links  # type: ignore[attr-defined]
    return False


def _descriptors() -> Iterable[int]:
    """Numbers that may be descriptors of this process."""
    try:
        return map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:  # with `landlock`, in a process that was revived: it may not read about itself
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
