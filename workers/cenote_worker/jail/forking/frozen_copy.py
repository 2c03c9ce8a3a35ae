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
"""Seconds that a copy may take. A copy that hangs on a lock of a thread that was not copied is killed after that."""


class FrozenCopies:
    """At most one copy of this process at a time."""

    def __init__(self) -> None:
        self._copy = 0
        self._safety = ForkSafety()

    def run(self, work: Callable[[Callable[[], None]], None]) -> None:
        """Does the work in a copy, or in this process if a copy would hang. `work` gets a function that lets the
        caller go on.

        Returns once `work` has called that function, or has ended. Until then the work may read what is not copied:
        files.
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

    def forget(self) -> None:
        """In a process made from an image: the copy was a child of another one, and its number may be taken here."""
        self._copy = 0

    def reap(self, *, kill: bool = False) -> None:
        """Reaps a copy that has ended. kill: kills it first."""
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
    """Python threads, which this copy lacks: unlike a snapshot, it doesn't continue their computations."""
    return [thread for thread in _enumerate() if thread is not _main]


def _live_as_copy(work: Callable[[Callable[[], None]], None], telling: int) -> NoReturn:
    """Does the work and ends the process in all cases."""

    def tell() -> None:
        os.write(telling, b"\1")

    live_briefly(lambda: work(tell))


def live_briefly(work: Callable[[], None]) -> NoReturn:
    """Does the work in a process that was forked for it, and ends that process in all cases."""
    try:
        gc.disable()  # gc would write to the pages of all objects
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
    """When memory runs short, the kernel kills the copy, not the namespace's process."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _nothing() -> None:
    """No caller waits: the work is done in the process itself."""
