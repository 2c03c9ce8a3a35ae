"""The state that a runtime begins with, kept by a process that was forked before there was a worker.

A copy that is made right before the first cell has all that getting ready has written to. The cell writes to most
of it again, and each page is there twice then: 3.5 MB. A process that has not got ready yet has none of that. If
somebody wants this state after all, it does what the worker did, from the same random numbers and environment.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.frozen import fork_beside, freeze
from cenote_worker.in_jail.snapshots.line import Message, number, say_begun

__builtins__ = BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """pid: of the process that keeps it, 0 if there is none. wanted: what was said to whoever is to go on from it."""

    pid: int = 0
    wanted: Message | None = None

    @property
    def files(self) -> int:
        """The version of the working directory that goes with it. Raises ValueError."""
        return number(self.wanted or {}, "files")


def keep_beginning(line: int, lend: Callable[[socket.socket, Beginning], None]) -> Beginning:
    """To be called before anything is made ready. line: descriptor of the line to the warden, -1 for none.

    Returns in the worker, with nothing wanted; and in each process that is the worker later, and goes on from there.
    lend: what forks do that are lent to the worker, with their line to it.
    """
    if line < 0:
        return Beginning()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        try:
            pid = fork_beside()
        except OSError:  # no process is to be had; the state is copied before the first cell, if one is then
            return Beginning()
        if pid is None:
            here.close()
            return _wait(there, lend)
        warden = socket.socket(fileno=line)
        try:
            say_begun(warden, pid, here)
        except OSError:  # it hears the end of its line
            return Beginning()
        finally:
            warden.detach()
        return Beginning(pid=pid)


def _wait(warden: socket.socket, lend: Callable[[socket.socket, Beginning], None]) -> Beginning:
    """The life of the process that keeps it. Returns in one that is the worker."""
    with suppress(BaseException):
        pid, said = os.getpid(), list[Message]()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a cell may signal all its group
        freeze(warden, said.append, lambda line: lend(line, Beginning(pid=pid, wanted=said[-1])))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return Beginning(pid=pid, wanted=said[-1])
    os._exit(1)
