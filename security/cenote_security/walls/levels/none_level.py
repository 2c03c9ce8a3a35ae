"""The `none` level: no wall at all, for trusted code that asked for it by name. Own process, folder and limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from cenote_security.policy import Mount
from cenote_security.walls import identity, limits
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import Home, JailAllowance, Level, building
from cenote_security.walls.levels.host_folders import Folders


class NoneLevel(Level):
    name = "none"
    ends_with_warden = False

    def __init__(self, host_proc: int) -> None:
        self._host_proc = host_proc
        self._oom_score = limits.score_of_jails(host_proc)
        self._folders = Folders()

    def prepare(self, _visible: Sequence[str], _mounts: Sequence[Mount]) -> None:
        """Nothing: the code sees the host as it is."""

    def home(self, number: int) -> Home:
        return self._folders.home(number)

    def enter(self, allowance: JailAllowance) -> None:
        with building("set the out-of-memory score"):
            identity.write_proc(self._host_proc, "oom_score_adj", self._oom_score)
        with building("make the working folder"):
            self._folders.make(allowance.number, None)

    def settle(self, allowance: JailAllowance) -> None:
        with building("enter the working folder"):
            os.chdir(self.home(allowance.number).workdir)
        with building("set limits"):
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            others = limits.tasks_of(os.geteuid())
            policy = allowance.policy
            limits.apply(allowance.memory, policy.disk_bytes, policy.processes + others)

    def fence_warden(self) -> None:
        """Nothing: there is no wall at this level."""

    def fence_worker(self) -> None:
        with building("bind the worker to its warden"):
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)

    def clean_up(self, number: int) -> None:
        self._folders.remove(number)

    def close(self) -> None:
        self._folders.close()
