"""A fresh runtime with what clients have put into another: to try a program, and to do nothing else."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace

from cenote_worker.history.step import START, HostCallRecord
from cenote_worker.hosted.replays import Replay, Unrepeated
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.supervisor.host_line import HostCall, HostLine


class RecordedHosts:
    """A HostHandler that answers from a record, each answer once, and calls nothing."""

    def __init__(self, calls: Iterable[HostCallRecord]) -> None:
        self._replay = Replay(calls, tentative=True)
        self._lock = threading.Lock()

    @property
    def refused(self) -> Unrepeated | None:
        """The first call that no record answers, which was told that it failed."""
        return self._replay.stopped

    def call(self, line: HostLine, call: HostCall) -> None:
        with self._lock:
            answer = self._replay.answer(call, "external")  # so that nothing is allowed that is not recorded
        call.close()
        assert answer is not None
        line.answer(call.id, answer)

    def cancel(self, _call_id: int) -> None:
        """Every call is answered at once."""

    def release(self, _reference: int) -> None:
        """There are no references."""

    def ended(self) -> None:
        """Nothing is under way."""


def rehearsal(source: HostedRuntime, hosts: RecordedHosts, steps: Collection[int]) -> HostedRuntime:
    """A runtime of the same policy that has not begun yet. Close it.

    It begins with what clients have put into the source at first, and at these steps. It reaches no network and
    writes to nothing of the host's: what is tried had its effects already.
    """
    policy = source.policy
    mounts = [replace(mount, writable=False) for mount in policy.mounts]
    fresh = HostedRuntime(
        replace(policy, network="none", mounts=mounts, snapshots="none", runtime_timeout=None),
        hosts,
        name=source.name,
    )
    for injection in source.noted.all():
        if not injection.seat.private and injection.step in (START, *steps):
            fresh.declare(replace(injection, values=injection.values.duplicate(), number=0))
    return fresh
