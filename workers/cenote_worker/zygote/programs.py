"""The programs that run beside a worker, as its warden knows them: one attendant each."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, NoReturn

from cenote_security.walls import libc_unsafe as libc
from cenote_worker.zygote.strays import Birth, birth_at

MOST: Final = 64
"""At once. Each needs a process for its attendant, and descriptors of its caller."""

Attend = Callable[[Sequence[int]], NoReturn]
"""What an attendant does with the descriptors that came for it."""

Cause = Literal["", "worker", "rollback"]
"""Why the warden has killed one that was younger than the state that the worker goes on from: the worker had died, or
was to go back. Empty where something else has killed its attendant."""


class Programs:
    """Of one jail. attendants: pids, with the numbers of the messages that asked for them and when they began."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend
        self.attendants: dict[int, tuple[int, Birth]] = {}

    def begin(self, number: int, descriptors: Sequence[int]) -> int:
        """Fork an attendant. Gives an errno where that cannot be done, else 0. Closes the descriptors."""
        try:
            if len(self.attendants) >= MOST:
                return errno.EAGAIN
            pid = libc.bare_fork()
        except OSError as error:
            return error.errno or errno.EAGAIN
        else:
            if pid == 0:
                self._attend(descriptors)
            # Not by `/proc`, which does not show it yet.
            now, _ = birth_at(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            self.attendants[pid] = number, (now, pid)
            return 0
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def older(self, than: Birth) -> list[int]:
        """Attendants that began before: their programs go on, with what those have started since."""
        return [pid for pid, (_, born) in self.attendants.items() if born <= than]

    def end(self, number: int) -> None:
        """One that does not do as it is told, or is told nothing any more."""
        for pid, (found, _) in self.attendants.items():
            if found == number:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def forget(self, pid: int) -> tuple[int, Birth]:
        """It has ended. Gives what was known of it."""
        return self.attendants.pop(pid)
