"""A frozen copy of a worker: a process that waits, and from which other processes are forked that go on from there.

The copy is a child of the warden's, not of the worker's: a cell that waits for its own children never meets it. It
has one thread, as the worker had when it was copied.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.snapshots.line import hear, say


def freeze(warden: socket.socket) -> None:
    """The copy's life. Returns in a process that is to be the worker, forked from the copy when the warden asked.

    warden: the copy's own socket to it. The copy ends with the other end of that.
    """
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError, ValueError):
        while hear(warden) is not None:
            if _becomes_worker(warden):
                warden.close()
                return
    os._exit(0)


def _becomes_worker(warden: socket.socket) -> bool:
    """True in the process that is the worker now: a fork of this one, or this one where no fork can be had."""
    try:
        pid = libc.sibling_fork()
    except OSError:
        say(warden, {"pid": os.getpid()})
        return True
    if pid == 0:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        return True
    say(warden, {"pid": pid})
    return False
