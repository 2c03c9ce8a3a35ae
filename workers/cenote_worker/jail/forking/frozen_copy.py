"""Work on the state as it is now, while the next cell runs: in a forked copy of this process."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from cenote_worker.jail.forking.fork_safety import ForkSafety
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_enumerate, _main = threading.enumerate, threading.main_thread()

LONGEST = 600
"""Seconds that a copy may take. One that hangs on a lock of a thread that was not copied is ended by then."""


class FrozenCopies:
    """At most one copy of this process at a time."""

    def __init__(self) -> None:
        self._copy = 0
        self._safety = ForkSafety()

    def run(self, work: Callable[[Callable[[], None]], None]) -> None:
        """Does the work in a copy, or right here where a copy would hang; it is given what lets the caller go on.

        Returns once the work has called that, or is over: until then it may read what is not copied: files.
        """
        self.reap(kill=True)
        if self._safety.make_quiet(ours=_threads()):
            work(_nothing)
            return
        waiting, telling = os.pipe()
        self._copy = os.fork()
        if not self._copy:
            os.close(waiting)
            _live_as_copy(work, telling)
        os.close(telling)
        try:
            os.read(waiting, 1)
        finally:
            os.close(waiting)

    def reap(self, *, kill: bool = False) -> None:
        """Takes note of a copy that has ended. kill: ends it."""
        if not self._copy:
            return
        with suppress(ChildProcessError):  # a cell has waited for it
            if kill:
                with suppress(ProcessLookupError):
                    os.kill(self._copy, signal.SIGKILL)
            pid, _ = os.waitpid(self._copy, 0 if kill else os.WNOHANG)
            if not pid:
                return
        self._copy = 0


def _threads() -> list[threading.Thread]:
    """Python's, which this copy does without: unlike a snapshot's, nobody goes on computing in it."""
    return [thread for thread in _enumerate() if thread is not _main]


def _live_as_copy(work: Callable[[Callable[[], None]], None], telling: int) -> NoReturn:
    """Does the work and ends the process, whatever happens."""

    def tell() -> None:
        os.write(telling, b"\1")

    live_briefly(lambda: work(tell))


def live_briefly(work: Callable[[], None]) -> NoReturn:
    """Does the work in a process that was forked for it, and ends that, whatever happens."""
    try:
        gc.disable()  # a look at all objects would write to the pages of all
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))  # between cells they wait
        signal.alarm(LONGEST)
        _die_first()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.stdout = sys.stderr = open(nowhere, "w")  # noqa: SIM115  (for the rest of this process)
        work()
    finally:
        os._exit(0)


def _die_first() -> None:
    """When memory gets short, the copy is what the kernel ends, not the namespace."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _nothing() -> None:
    """Nobody waits: the work is done in the process itself."""
