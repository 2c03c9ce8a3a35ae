"""One bomb in one jail, and its peak memory as counted by the kernel.

The watchdog is measured with a control group that sets no limit: it counts every page between two looks.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from cenote.runtime import PythonRuntime
from cenote_security.policy import Limits, SandboxPolicy
from cenote_security.walls.cgroups import CgroupShare, ClientGroups, JailGroup
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.account.control_group import ControlGroupAccount
from cenote_worker.supervisor.account.process_tree import ProcessTreeAccount
from cenote_worker.zygote.processes import descendants

MEMORY = 256 * 2**20
UNLIMITED = CgroupShare(memory=1 << 50, tasks=4096, cpus=64)


@dataclass(frozen=True, kw_only=True)
class Overshoot:
    """limit, peak: bytes. reason: why the cell ended. seconds: until it ended."""

    limit: int
    peak: int
    reason: str
    seconds: float

    @property
    def beyond(self) -> int:
        """Bytes above the limit."""
        return max(self.peak - self.limit, 0)


def measure(groups: ClientGroups, limits: Limits, source: str) -> Overshoot:
    policy = SandboxPolicy(memory=MEMORY, disk=8 * MEMORY, limits=limits, cpus=8, cell_timeout=30)
    yardstick = groups.make(UNLIMITED, ExitStack())  # never closed, so that no sweep removes it
    try:
        with PythonRuntime(sandbox=policy) as runtime:
            runtime.core.start()
            account = _account(runtime)
            if isinstance(account, ProcessTreeAccount):
                _move(account._worker.warden, yardstick)
            limit = account._limit.total
            started = time.perf_counter()
            result = runtime.execute(source)
            seconds = time.perf_counter() - started
            peak = yardstick.peak() if limits == "watchdog" else result.usage.peak_memory
            reason = result.error.reason if result.error else "none"
    finally:
        _remove(yardstick)
    return Overshoot(limit=limit, peak=peak, reason=reason, seconds=seconds)


def _account(runtime: PythonRuntime) -> ControlGroupAccount | ProcessTreeAccount:
    hosted = runtime.core.backend
    assert isinstance(hosted, HostedRuntime)
    assert hosted.supervisor is not None
    account = hosted.supervisor._account
    assert isinstance(account, ControlGroupAccount | ProcessTreeAccount)
    return account


def _move(warden: int, group: JailGroup) -> None:
    for pid in (warden, *descendants(warden)):
        (group.folders["memory"] / "cgroup.procs").write_text(str(pid))


def _remove(group: JailGroup) -> None:
    group.close()
    deadline = time.monotonic() + 10
    while not group.remove() and time.monotonic() < deadline:
        time.sleep(0.01)
