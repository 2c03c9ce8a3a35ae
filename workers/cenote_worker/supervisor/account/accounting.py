"""Chooses what enforces the limits of a jail as a whole: a control group where one can be made, else a watchdog."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack, suppress

from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.cgroups import CgroupShare, ClientGroups, JailGroup, find_site
from cenote_security.walls.level import LevelName
from cenote_worker.supervisor.account.control_group import ControlGroupAccount
from cenote_worker.supervisor.account.jail_account import JailAccount, MemoryLimit
from cenote_worker.supervisor.account.process_tree import ProcessTreeAccount, Watchdog
from cenote_worker.supervisor.account.worker_process import WorkerProcess, pid_of
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.zygote.client import ZygoteFacts

WARDEN = 1
"""A jail's first process is a task of its group too, and the policy does not count it."""


_FOR_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Accounting:
    """The control groups and the watchdog of one client, each made when a jail first needs it."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._watchdog = Watchdog()
        self._lock = threading.Lock()
        self._groups: ClientGroups | None = None
        self._without: OSError | None = None

    def group_for(self, policy: SandboxPolicy, facts: ZygoteFacts, arrival: ExitStack) -> JailGroup | None:
        """A group for a jail that has been started when `arrival` is closed; None when a watchdog will do.

        Raises UnavailableError when the policy requires a group and none can be made; OSError when this process has
        no descriptor left, which says nothing about control groups.
        """
        if policy.limits == "watchdog":
            return None
        tasks = facts.tasks_each * (policy.processes + WARDEN) + facts.own_tasks
        share = CgroupShare.of(policy, base_memory=facts.base_memory, tasks=tasks)
        try:
            return self._own_groups().make(share, arrival)
        except OSError as error:
            if error.errno in _FOR_NOW:
                raise
            if policy.limits == "cgroup":
                raise UnavailableError(
                    f'limits="cgroup" needs control groups that this process may make: {error}; '
                    f"`cenote doctor` says how to have them delegated"
                ) from error
            return None

    def account(self, policy: SandboxPolicy, ends: JailEnds) -> JailAccount:
        """The account of a jail with these ends. It takes over the group among them."""
        worker = WorkerProcess(pid_of(ends.pidfd))
        limit = MemoryLimit(policy=policy.memory_bytes, base=ends.base)
        if ends.group is not None:
            own_kernel = ends.isolation == "gvisor"
            return ControlGroupAccount(ends.group, worker, limit, self._reactor, own_kernel=own_kernel)
        disk = os.dup(ends.disk) if ends.disk >= 0 else -1
        return ProcessTreeAccount(worker, limit, self._watchdog, disk)

    def sweep_groups(self) -> None:
        """Call this from time to time where other processes supervise the jails of these groups."""
        with self._lock:
            groups = self._groups
        if groups is not None:
            with suppress(OSError):  # a group was removed meanwhile: the next sweep removes the rest
                groups.sweep()

    def remove_groups(self) -> None:
        """Call this at the end of the client, when its jails have ended."""
        with self._lock:
            groups, self._groups = self._groups, None
        if groups is not None:
            groups.remove()

    def _own_groups(self) -> ClientGroups:
        with self._lock:
            if self._without is not None:
                raise self._without
            if self._groups is None:
                try:
                    self._groups = ClientGroups(find_site())
                except OSError as error:
                    self._without = None if error.errno in _FOR_NOW else error
                    raise
            return self._groups


def open_disk(pidfd: int, isolation: LevelName) -> int:
    """A descriptor of the jail's disk if the jail has its own disk in memory, else -1.

    It is opened before the jail's code runs: later, the same name could be something else. At `strict` the warden's
    /proc files cannot be read; at `gvisor` only gVisor's can, and its later processes have other roots.
    """
    if isolation not in ("strict", "gvisor"):
        return -1
    with suppress(OSError):
        worker = WorkerProcess(pid_of(pidfd))
        worker.close()
        pid = worker.pid if isolation == "strict" else worker.warden
        return os.open(f"/proc/{pid}/root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return -1
