"""Which task of a job starts when, and what happens after its attempt. No clock, no I/O, no randomness.

The tenant's quotas and the machines limit how many tasks may run at once. A quarter of each quota is left for the
tenant's other work. If nothing of the job runs, one task may take all that is free: with a small quota, none could
start otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from cenote.gateway.jobs.rules import MAX_BACKOFF, MAX_CONCURRENCY, JobRules
from cenote.gateway.values.quota import Amounts, Quota
from cenote_security.policy import SandboxPolicy

MAX_LOSSES: Final = 5
"""Attempts of one task with an unknown outcome, because the platform failed during them. Limited, since the task may
be what brings the platform down.
"""

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds of the longest pause when the tenant has no room; the pause doubles each time."""

MAX_WAITING: Final = 10 * MAX_CONCURRENCY
"""Tasks that wait in memory, from which on no more are taken up."""

Verdict = Literal["over", "failed", "lost", "crowded"]
"""over: no further attempt helps. lost: the outcome of the attempt is unknown. crowded: it did not begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTask:
    """A task that is to run. tries: attempts that have failed. losses: attempts with an unknown outcome.

    due: seconds since the epoch, before which it does not begin.
    """

    position: int
    tries: int = 0
    losses: int = 0
    due: float = 0.0


class Schedule:
    """The schedule of one job. Times are seconds since the epoch, by the caller's clock."""

    def __init__(self, rules: JobRules, standings: Iterable[PendingTask] = ()) -> None:
        self._rules = rules
        self._ready: list[tuple[int, PendingTask]] = []
        self._later: list[tuple[float, int, PendingTask]] = []
        self._running: dict[int, PendingTask] = {}
        self._not_before = 0.0
        self._pause = FIRST_PAUSE
        self.add(standings)

    def add(self, standings: Iterable[PendingTask]) -> None:
        """Adds tasks that are to run, none of which is known yet."""
        for standing in standings:
            heapq.heappush(self._later, (standing.due, standing.position, standing))

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def known(self) -> set[int]:
        """Positions of all tasks that run or wait."""
        return {*self._running, *(place for place, _ in self._ready), *(place for _, place, _ in self._later)}

    @property
    def wants_more(self) -> bool:
        """Whether further tasks should be added now: a few are ready, and not too many wait for their time."""
        return len(self._ready) + len(self._later) < MAX_WAITING and len(self._ready) < MAX_CONCURRENCY

    @property
    def is_over(self) -> bool:
        """Whether no task runs or waits."""
        return not (self._running or self._ready or self._later)

    def wants(self, now: float) -> int:
        """How many tasks could begin now, if there were room."""
        self._ripen(now)
        if now < self._not_before:
            return 0
        return max(0, min(len(self._ready), self._rules.concurrency - len(self._running)))

    def start(self, now: float, room: int) -> list[PendingTask]:
        """Starts tasks in the order of the input and returns them. room: how many more there is room for."""
        begun = []
        for _ in range(min(self.wants(now), max(room, 0))):
            _, standing = heapq.heappop(self._ready)
            self._running[standing.position] = standing
            begun.append(standing)
        return begun

    def ended(self, position: int, verdict: Verdict, now: float) -> PendingTask | None:
        """Records the end of an attempt. Returns the task if it is to run again, None if it is over."""
        before = self._running.pop(position)
        if verdict != "crowded":
            self._pause = FIRST_PAUSE
        after = self._after(before, verdict, now)
        if after is not None:
            self.add([after])
        return after

    def hold(self, now: float) -> None:
        """Pauses starts for a while, since there is no room."""
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def next_at(self, now: float) -> float | None:
        """When to look again: `now` if a task can begin; None if only the end of a running task matters."""
        if self.wants(now):
            return now
        if len(self._running) >= self._rules.concurrency:
            return None
        if self._ready:
            return self._not_before
        return max(self._later[0][0], self._not_before) if self._later else None

    def withdraw(self) -> None:
        """Drops the tasks that have not begun."""
        self._ready, self._later = [], []

    def _after(self, before: PendingTask, verdict: Verdict, now: float) -> PendingTask | None:
        match verdict:
            case "over":
                return None
            case "crowded":
                self.hold(now)
                return before
            case "lost":
                return lost(before, now)
        tries = before.tries + 1
        if tries >= self._rules.attempts:
            return None
        wait = min(self._rules.backoff * 2 ** (tries - 1), MAX_BACKOFF)
        return PendingTask(position=before.position, tries=tries, losses=before.losses, due=now + wait)

    def _ripen(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, position, standing = heapq.heappop(self._later)
            heapq.heappush(self._ready, (position, standing))


def lost(before: PendingTask, now: float) -> PendingTask | None:
    """The task after an attempt with an unknown outcome; None if it is not tried again."""
    losses = before.losses + 1
    if losses >= MAX_LOSSES:
        return None
    return PendingTask(position=before.position, tries=before.tries, losses=losses, due=now)


OF_A_PROCESSOR: Final = 4
"""Tasks of one job for each processor: they mostly wait for a model or for data."""

AT_LEAST: Final = 16
"""Minimum number of tasks of one job, however few processors there are."""


def tasks_on(processors: int) -> int:
    """How many tasks of one job may run at once on machines with this many processors in total."""
    return min(max(AT_LEAST, OF_A_PROCESSOR * processors), MAX_CONCURRENCY)


def room(
    limits: Amounts, used: Amounts, need: Amounts, running: int, on_machines: int = MAX_CONCURRENCY
) -> int:
    """How many more tasks may begin. need: of one task. running: tasks of this job. on_machines: see tasks_on."""
    return min(_room_in_quotas(limits, used, need, running), max(on_machines - running, 0))


def _room_in_quotas(limits: Amounts, used: Amounts, need: Amounts, running: int) -> int:
    bound = [quota for quota in need if quota in limits and need[quota] > 0]
    free = min(
        ((limits[quota] - limits[quota] // 4 - used[quota]) // need[quota] for quota in bound),
        default=MAX_CONCURRENCY,
    )
    if free > 0 or running:
        return max(free, 0)
    return int(all(used[quota] + need[quota] <= limits[quota] for quota in bound))


def fits(limits: Amounts, need: Amounts) -> Quota | None:
    """The quota that is too small for even a single task; None if there is none."""
    return next((quota for quota in need if quota in limits and need[quota] > limits[quota]), None)


def need_of(policy: SandboxPolicy) -> Amounts:
    """The quotas that the runtime of one task takes."""
    return {Quota.RUNTIMES: 1, Quota.MEMORY: policy.memory_bytes, Quota.CPUS: policy.millicpus}
