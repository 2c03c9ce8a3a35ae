"""A jail in a control group: the kernel holds its limits and counts exactly."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from cenote_security.walls.cgroups import JailGroup
from cenote_worker.supervisor.account.jail_account import (
    MIB,
    EndJail,
    MeasuredUsage,
    MemoryLimit,
    UsageBaseline,
)
from cenote_worker.supervisor.account.worker_process import WorkerProcess
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.reactor import Reactor

FIRST_WAIT = 0.005
"""Seconds until a second try to remove a group: the processes of a killed jail take about that long to end."""

LONGEST_WAIT = 2.0
"""A group that cannot be removed after waits up to this is left to the next client's sweep."""


class ControlGroupAccount:
    """See JailAccount."""

    def __init__(
        self,
        group: JailGroup,
        worker: WorkerProcess,
        limit: MemoryLimit,
        reactor: Reactor,
        *,
        own_kernel: bool = False,
    ) -> None:
        """own_kernel: the jail has its own kernel, which may report a process that was killed as some other end."""
        self._group = group
        self._worker = worker
        self._limit = limit
        self._reactor = reactor
        self._own_kernel = own_kernel
        self._begun = UsageBaseline()
        self._kills = 0

    @property
    def mode(self) -> str:
        return self._group.version

    def begin(self) -> UsageBaseline:
        self._group.forget_peak()
        self._begun = UsageBaseline(
            cpu=self._cpu_seconds(), written=self._worker.written(), kills=self._kills
        )
        return self._begun

    def resume(self, begun: UsageBaseline) -> None:
        self._begun, self._kills = begun, begun.kills

    def spent(self) -> MeasuredUsage:
        peak = self._group.peak()
        # Only a group that reached its limit can have lost a process to it; otherwise the lookup is not needed.
        killed = self._newly_killed() if peak >= self._limit.total - MIB else 0
        return MeasuredUsage(
            cpu=max(self._cpu_seconds() - self._begun.cpu, 0.0),
            peak_memory=peak,
            bytes_written=max(self._worker.written() - self._begun.written, 0),
            killed=killed,
            crowded=self._limit.is_near(peak),
        )

    def explain(self, found: JailExit) -> JailExit:
        by_memory = found.reason in ("memory", "killed")
        if (by_memory or self._own_kernel) and self._newly_killed():
            return JailExit(reason="memory", detail=self._limit.against(self._group.peak()))
        if not by_memory:
            return found
        return replace(found, reason="killed", detail=found.detail or "SIGKILL")

    def watch(self, condemn: EndJail) -> None:
        """Nothing to do: the kernel watches."""

    def sparing(self, inode: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Does nothing: the kernel knows which jail has filled the file."""
        return nullcontext()

    def follow(self, pid: int) -> None:
        self._worker.follow(pid)

    def close(self) -> None:
        self._worker.close()
        self._group.kill()
        self._group.close()
        self._remove(FIRST_WAIT)

    def let_go(self) -> None:
        self._worker.close()
        self._group.close()

    def _remove(self, wait: float) -> None:
        if not self._group.remove() and wait <= LONGEST_WAIT:
            self._reactor.call_at(time.monotonic() + wait, lambda: self._remove(2 * wait))

    def _newly_killed(self) -> int:
        before, self._kills = self._kills, self._group.kills()
        return self._kills - before

    def _cpu_seconds(self) -> float:
        return self._group.cpu_seconds() if self._group.counts_cpu else self._worker.cpu_seconds()
