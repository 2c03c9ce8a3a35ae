"""Which task of a job begins when, and what becomes of one whose attempt is over. No clock, no I/O, no chance.

Nothing in here has to survive: it is made anew from what is written down of each task, see Standing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from cenote_worker.job_rules import MAX_BACKOFF, JobRules

MAX_LOSSES: Final = 5
"""Attempts of one task whose outcome is unknown, since the platform failed under it: a task that brings it down each
time is not begun for ever.
"""

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds for which nothing is begun where the tenant has no room, doubled each time."""

Verdict = Literal["over", "failed", "lost", "crowded"]
"""What an attempt came to. over: no further one is of use. lost: nobody knows. crowded: it did not begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A task that is to be done. tries: attempts that have failed. losses: of which nobody knows.

    due: seconds since the epoch, before which it does not begin.
    """

    position: int
    tries: int = 0
    losses: int = 0
    due: float = 0.0


class Schedule:
    """Of one job. Times are seconds since the epoch, as the caller has them."""

    def __init__(self, rules: JobRules, standings: Iterable[Standing] = ()) -> None:
        self._rules = rules
        self._ready: list[tuple[int, Standing]] = []
        self._later: list[tuple[float, int, Standing]] = []
        self._running: dict[int, Standing] = {}
        self._not_before = 0.0
        self._pause = FIRST_PAUSE
        self.add(standings)

    def add(self, standings: Iterable[Standing]) -> None:
        """Tasks that are to be done, none of which is known here."""
        for standing in standings:
            heapq.heappush(self._later, (standing.due, standing.position, standing))

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def known(self) -> set[int]:
        """Positions of all that runs or is to be done."""
        return {*self._running, *(place for place, _ in self._ready), *(place for _, place, _ in self._later)}

    @property
    def is_over(self) -> bool:
        """Nothing is under way, and nothing is to be done."""
        return not (self._running or self._ready or self._later)

    def wants(self, now: float) -> int:
        """How many could begin now, if there were room."""
        self._ripen(now)
        if now < self._not_before:
            return 0
        return max(0, min(len(self._ready), self._rules.concurrency - len(self._running)))

    def start(self, now: float, room: int) -> list[Standing]:
        """Those that begin now, by their places in the input. room: for how many more there is any."""
        begun = []
        for _ in range(min(self.wants(now), max(room, 0))):
            _, standing = heapq.heappop(self._ready)
            self._running[standing.position] = standing
            begun.append(standing)
        return begun

    def ended(self, position: int, verdict: Verdict, now: float) -> Standing | None:
        """An attempt is over. Gives the task's standing if it is to be done once more, None if it is over."""
        before = self._running.pop(position)
        if verdict != "crowded":
            self._pause = FIRST_PAUSE
        after = self._after(before, verdict, now)
        if after is not None:
            self.add([after])
        return after

    def hold(self, now: float) -> None:
        """There is no room: nothing begins for a while."""
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def next_at(self, now: float) -> float | None:
        """When to look again: `now` if something can begin; None if only the end of what runs can change anything."""
        if self.wants(now):
            return now
        if len(self._running) >= self._rules.concurrency:
            return None
        if self._ready:
            return self._not_before
        return max(self._later[0][0], self._not_before) if self._later else None

    def withdraw(self) -> None:
        """What has not begun never does."""
        self._ready, self._later = [], []

    def _after(self, before: Standing, verdict: Verdict, now: float) -> Standing | None:
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
        return Standing(position=before.position, tries=tries, losses=before.losses, due=now + wait)

    def _ripen(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, position, standing = heapq.heappop(self._later)
            heapq.heappush(self._ready, (position, standing))


def lost(before: Standing, now: float) -> Standing | None:
    """Of a task whose attempt ended without anybody knowing how; None if it is not done any more."""
    losses = before.losses + 1
    if losses >= MAX_LOSSES:
        return None
    return Standing(position=before.position, tries=before.tries, losses=losses, due=now)
