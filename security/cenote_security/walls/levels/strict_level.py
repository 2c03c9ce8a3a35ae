"""The `strict` level: namespaces, private root, Landlock, seccomp."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final

from cenote_security.policy import Mount
from cenote_security.walls import identity, limits, namespaces, restrictions, root
from cenote_security.walls.identity import UserIds
from cenote_security.walls.kernel import landlock
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.kernel.landlock import Grant
from cenote_security.walls.level import Home, JailAllowance, Level, LevelName, building

_LAST_PID: Final = "sys/kernel/ns_last_pid"


class StrictLevel(Level):
    name: LevelName = "strict"
    ends_with_warden = True
    holds_signals = True

    def __init__(self, host_proc: int) -> None:
        """host_proc: a descriptor of the host's `/proc`, which cannot be named once the private root is entered."""
        self._host_proc = host_proc
        self._filter = restrictions.call_filter("strict")
        self._furniture: root.Furniture | None = None
        self._grants: Sequence[Grant] = ()
        self._ports: Sequence[int] = ()
        self._last_capability = identity.last_capability(host_proc)
        self._oom_score = limits.score_of_jails(host_proc)
        with building("find users for the jails"):
            self._users = UserIds.take(host_proc) if os.geteuid() == 0 else None

    def prepare(self, visible: Sequence[str], mounts: Sequence[Mount]) -> None:
        host_cpus = os.cpu_count() or 1
        namespaces.enter_for_zygote(self._host_proc)
        pending = root.build_and_enter(visible, mounts, host_cpus)
        namespaces.leave_power_behind(self._users)
        self._furniture = root.survey(pending)
        written = (Grant(path=mount.target, access=landlock.WRITE) for mount in mounts if mount.writable)
        self._grants = (*restrictions.STRICT_GRANTS, *written)

    def home(self, _number: int) -> Home:
        return Home(workdir=root.WORKDIR, temporary="/tmp")

    def enter(self, allowance: JailAllowance) -> None:
        namespaces.enter_for_jail(self._host_proc, self._users, allowance.seat)
        with building("set the out-of-memory score"):
            identity.write_proc(self._host_proc, "oom_score_adj", self._oom_score)

    def listen(self) -> socket.socket:
        return namespaces.listen()

    def settle(self, allowance: JailAllowance) -> None:
        policy = allowance.policy
        root.furnish(self._furnished(), policy)
        with building("set limits"):
            limits.apply(allowance.memory, policy.disk_bytes, policy.processes)
        self._filter, self._grants = restrictions.as_wanted(policy, "strict", self._filter, self._grants)
        self._ports = (namespaces.EGRESS_PORT,) if allowance.egress else ()

    def fence_warden(self) -> None:
        with building("renounce capabilities"):
            if self._last_capability >= libc.CAP_CHECKPOINT_RESTORE:
                self.last_pid = _last_pid(self._host_proc)
            # The warden's alone: the worker gives it up before it becomes the namespace.
            kept = (libc.CAP_CHECKPOINT_RESTORE,) if self.last_pid >= 0 else ()
            identity.renounce_capabilities(self._last_capability, kept)
            # Not dumpable: with hidepid the worker does not even see its warden.
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
        self.worker_rules = restrictions.ruleset(self._grants, self._ports)
        restrictions.confine_paths(self.worker_rules)
        restrictions.filter_calls(self._filter)

    def fence_attendant(self) -> None:
        with building("renounce what the warden has"):
            libc.set_capabilities()
        restrictions.confine_paths(self.worker_rules)

    def fence_worker(self) -> None:
        with building("renounce what the warden has"):
            libc.set_capabilities()
        restrictions.confine_paths(self.worker_rules)
        with building("let a process see itself in /proc"):
            libc.prctl(libc.PR_SET_DUMPABLE, 1)

    def clean_up(self, _number: int) -> None:
        """Nothing: everything a jail made went with its namespaces."""

    def close(self) -> None:
        """Nothing, for the same reason."""

    def _furnished(self) -> root.Furniture:
        assert self._furniture is not None, "a jail is settled after its zygote was prepared"
        return self._furniture


def _last_pid(host_proc: int) -> int:
    """A descriptor of the file in `/proc` that says which number the next process of a pid namespace has: that of who
    asks, whichever `/proc` it is in. -1 where there is none, or it may not be written, as in many containers.
    """
    for folder in (None, host_proc):
        path = _LAST_PID if folder is not None else f"/proc/{_LAST_PID}"
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            continue
    return -1
