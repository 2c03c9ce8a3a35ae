"""Inside a gVisor sandbox: what a jail's own processes still do to themselves. The sandbox is the wall."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from typing import Final

from cenote_security.policy import Mount
from cenote_security.walls import identity, limits, restrictions
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import Home, JailAllowance, Level, building
from cenote_security.walls.root import WORKDIR

_NO_LIMITS: Final = frozenset(
    {resource.RLIMIT_MSGQUEUE, resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE, resource.RLIMIT_SIGPENDING}
)
"""What gVisor has no limits for, nor, signals aside, the thing itself."""


class GvisorGuestLevel(Level):
    name = "gvisor"
    ends_with_warden = True
    forks_siblings = False

    def prepare(self, _visible: Sequence[str], _mounts: Sequence[Mount]) -> None:
        """Nothing: the zygote outside did that."""

    def home(self, _number: int) -> Home:
        return Home(workdir=WORKDIR, temporary="/tmp")

    def enter(self, _allowance: JailAllowance) -> None:
        """Nothing: the whole interpreter is inside."""

    def settle(self, allowance: JailAllowance) -> None:
        with building("enter the working folder"):
            os.chdir(WORKDIR)
        with building("set limits"):
            limits.apply(
                allowance.memory, allowance.policy.disk_bytes, allowance.policy.processes, unknown=_NO_LIMITS
            )

    def fence_warden(self) -> None:
        """The filter spares gVisor's kernel the calls that no jail needs; gVisor has no Landlock."""
        with building("renounce privileges"):
            identity.forbid_new_privileges()
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
        restrictions.filter_calls(restrictions.call_filter("strict"))

    def fence_worker(self) -> None:
        with building("let a process see itself in /proc"):
            libc.prctl(libc.PR_SET_DUMPABLE, 1)

    def clean_up(self, _number: int) -> None:
        """Nothing: everything goes with the sandbox."""

    def close(self) -> None:
        """Nothing, for the same reason."""
