"""What a runtime begins with, kept by no process: the warden forks one that does what the first worker did.

A copy that is made right before the first cell has all that getting ready has written to. The cell writes to most
of it again, and each page is there twice then: 3.5 MB. A process that waits and has not got ready still takes 2.
The warden is a fork of the same zygote, has not got ready either, and is there anyway.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.snapshots.line import BEGINNING


@dataclass(eq=False)
class Again(BaseException):
    """Raised in a process that was forked to begin where the worker began: what made it is none of its affairs.

    As an exception, so that it has no more of the warden's frames below it than the first worker had: programs that
    recurse until Python stops them count those. wanted: see `WorkerSettings`. borrower: the line of whom it is lent.
    """

    wanted: Mapping[str, object]
    borrower: int | None = None


class Origin:
    """In the place of a `Copy`."""

    pid: Final = BEGINNING
    memory: Final = 0

    def wake(self, then: Mapping[str, object]) -> int | None:
        """See `Copy.wake`. Raises Again in that process."""
        try:
            pid = libc.bare_fork()
        except OSError:
            return None
        if pid == 0:
            raise Again(then)
        return pid

    def lend(self, line: socket.socket, then: Mapping[str, object]) -> None:
        """See `Copy.lend`. Raises Again in the process that answers."""
        try:
            pid = libc.bare_fork()
        except OSError:
            return
        if pid == 0:
            raise Again(then, line.detach())

    def end(self) -> None:
        """Nothing is there that could end."""

    def close(self) -> None:
        """Nothing is there that could have ended."""
