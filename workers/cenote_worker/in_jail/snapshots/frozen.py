"""A frozen copy of a worker: a process that waits, and from which other processes are forked that go on from there.

The copy is a child of the warden's, not of the worker's: a cell that waits for its own children never meets it. It
has one thread, as the worker had when it was copied.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.in_jail.forking.native_threads import is_alone
from cenote_worker.in_jail.forking.threaded_fork_unsafe import fork_from_threads
from cenote_worker.in_jail.frozen_copy import live_briefly
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.line import Message, hear, say

__builtins__ = BUILTINS


def fork_beside() -> int | None:
    """The pid of a copy of this process, a child of the warden's; None in the copy.

    Threads of libraries that survive a fork do so by handlers which the C library's own fork runs, and that makes a
    child of this process. So there is one in between then, which ends at once and leaves its child to the warden.
    """
    if is_alone():
        return libc.sibling_fork() or None
    here, there = os.pipe2(os.O_CLOEXEC)
    between = fork_from_threads()
    if between == 0:
        copy = libc.bare_fork()
        if copy == 0:
            os.close(here)
            os.close(there)
            return None
        os.write(there, str(copy).encode())
        os._exit(0)
    os.close(there)
    os.waitpid(between, 0)
    pid = int(os.read(here, 20) or b"0")
    os.close(here)
    if pid == 0:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return pid


def freeze(
    warden: socket.socket,
    go_on: Callable[[Message], None],
    answer: Callable[[socket.socket], None],
) -> None:
    """The copy's life. Returns in a process that is to be the worker, forked from the copy when the warden asked.

    warden: the copy's own socket to it. The copy ends with the other end of that. go_on: what each fork of the copy
    begins with, given what the warden has said: it may be wanted for a later state. answer: what forks of the copy
    do then that are lent to the worker, with their line to it.
    """
    with suppress(OSError, ValueError):
        # The number of the worker is not free for another one while it is that of a session or a group of processes.
        os.setsid()
        # Nothing else before this: what a copy writes to is copied once more, and most copies never hear a word.
        warden.recv(1, socket.MSG_PEEK)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        while (heard := hear(warden)) is not None:
            if heard.attached is not None:
                _lend(heard.attached, partial(go_on, heard.message), answer)
            elif _becomes_worker(warden):
                warden.close()
                go_on(heard.message)
                return
    os._exit(0)


def _lend(line: socket.socket, go_on: Callable[[], None], answer: Callable[[socket.socket], None]) -> None:
    """Where no fork can be had, or it cannot go on, the worker hears the end of the line."""

    def work() -> None:
        go_on()
        answer(line)

    with line, suppress(OSError):
        if libc.sibling_fork() == 0:
            live_briefly(work)


def _becomes_worker(warden: socket.socket) -> bool:
    """True in the process that is the worker now: a fork of this one, or this one where no fork can be had."""
    try:
        pid = libc.sibling_fork()
    except OSError:
        say(warden, {"pid": os.getpid()})
        return True
    if pid == 0:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()  # as the worker was
        return True
    say(warden, {"pid": pid})
    return False
