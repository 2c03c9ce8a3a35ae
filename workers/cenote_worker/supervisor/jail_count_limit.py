"""How many jails one process may have at once, and the file descriptors that they need.

A loop that forgets to close its runtimes gets an error that says so. Each jail needs six descriptors, and the
usual soft limit of 1,024 is an old default: it is raised towards the hard limit when it comes near.
"""

from __future__ import annotations

import os
import resource
import threading
from typing import Final

from cenote_security.errors import UnavailableError, UsageError
from cenote_security.walls.limits import OPEN_FILES

SETTING: Final = "CENOTE_MAX_RUNTIMES"

DEFAULT: Final = 4096
"""Each has some processes, a dozen descriptors and tens of megabytes. A larger machine sets SETTING."""


class JailCountLimit:
    """Counts the jails of a process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._most = _most()
        self._lock = threading.Lock()
        self._taken = 0

    def take(self) -> None:
        """Counts one more jail. Raises UnavailableError at the limit."""
        with self._lock:
            if self._taken >= self._most:
                raise UnavailableError(
                    f"this process runs {self._taken} runtimes already, and {SETTING}={self._most} is its "
                    f"ceiling; close some, or raise it"
                )
            self._taken += 1

    def give(self) -> None:
        with self._lock:
            self._taken -= 1


def _most() -> int:
    text = os.environ.get(SETTING, str(DEFAULT))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{SETTING} must be a positive number, not {text!r}")
    return int(text)


PER_JAIL = 16
"""Six for a jail, the others for values under way."""

ABOVE_JAILS = 4 * OPEN_FILES
"""Without root, a process shares with its jails what the kernel counts per user. The kernel refuses to pass a
descriptor for a process whose soft limit is below the number that the user has in transit: the client's limit is
higher than a jail's."""


def ensure_room(further: int = 0) -> None:
    """Raises the soft limit of open files towards the hard one when this process comes near it, or a jail could.

    further: descriptors that this jail, or the caller, may come to need beside the usual ones.
    The soft limit is low for the sake of programs that use select(2); this process's own descriptors are not
    renumbered, so such a program sees high numbers only once it has opened that many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft if _open_now() + PER_JAIL + further < soft // 2 else soft * 4
    if os.geteuid() != 0:
        wanted = max(wanted, ABOVE_JAILS)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def room_for_connections(most: int) -> int:
    """The permitted number of connections: at most half of what this process can open, for strangers connect too."""
    ensure_room(most)
    return min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def _open_now() -> int:
    with os.scandir("/proc/self/fd") as found:  # a Path of each takes ten times as long
        return sum(1 for _ in found)
