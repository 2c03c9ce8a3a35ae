"""The schedule of a job: whatever fails, and whenever its process is killed, each task ends once, none is lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.gateway.jobs.rules import JobRules
from cenote.gateway.jobs.schedule import FIRST_PAUSE, MAX_LOSSES, PendingTask, Schedule, Verdict, lost


def tasks(count: int) -> list[PendingTask]:
    return [PendingTask(position=position) for position in range(1, count + 1)]


def begun(schedule: Schedule, now: float = 0.0, room: int = 100) -> list[int]:
    return [standing.position for standing in schedule.start(now, room)]


def test_in_the_order_of_the_input_and_no_more_than_may_run() -> None:
    """The next task begins when another one is over."""
    schedule = Schedule(JobRules(concurrency=2), tasks(3))
    assert [1, 2] == begun(schedule)
    assert None is schedule.next_at(0.0)
    schedule.ended(2, "over", 0.0)
    assert [3] == begun(schedule)
    assert not schedule.is_over
    for position in (1, 3):
        schedule.ended(position, "over", 0.0)
    assert schedule.is_over


def test_one_that_fails_waits_longer_each_time_and_then_is_over() -> None:
    """Two more attempts, the second after twice the time; other tasks do not wait for it."""
    schedule = Schedule(JobRules(concurrency=1, attempts=3, backoff=10.0), tasks(2))
    assert [1] == begun(schedule)
    assert 110.0 == schedule.ended(1, "failed", 100.0).due  # type: ignore[union-attr]
    assert [2] == begun(schedule, 100.0)
    schedule.ended(2, "over", 101.0)
    assert ([], 110.0) == (begun(schedule, 109.9), schedule.next_at(109.9))
    assert [1] == begun(schedule, 110.0)
    assert 130.0 == schedule.ended(1, "failed", 110.0).due  # type: ignore[union-attr]
    assert [1] == begun(schedule, 130.0)
    assert None is schedule.ended(1, "failed", 130.0)
    assert schedule.is_over


def test_no_room_is_no_failure() -> None:
    """A refused task begins again after a growing pause, as often as it takes."""
    schedule = Schedule(JobRules(concurrency=1), tasks(1))
    now = 0.0
    for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE):
        assert [1] == begun(schedule, now)
        assert PendingTask(position=1) == schedule.ended(1, "crowded", now)
        assert ([], now + pause) == (begun(schedule, now), schedule.next_at(now))
        now += pause
    assert [] == begun(schedule, now, room=0)
    assert [1] == begun(schedule, now)


@pytest.mark.parametrize("losses", [MAX_LOSSES - 2, MAX_LOSSES - 1])
def test_a_task_that_is_lost_again_and_again(losses: int) -> None:
    """It does not use up its attempts, and fails in the end."""
    before = PendingTask(position=1, tries=1, losses=losses)
    after = lost(before, 5.0)
    if losses == MAX_LOSSES - 1:
        assert None is after
    else:
        assert PendingTask(position=1, tries=1, losses=losses + 1, due=5.0) == after


def test_what_was_withdrawn_does_not_begin() -> None:
    """Running tasks are still waited for."""
    schedule = Schedule(JobRules(concurrency=1), tasks(3))
    begun(schedule)
    schedule.withdraw()
    assert {1} == schedule.known
    schedule.ended(1, "over", 0.0)
    assert ([], True) == (begun(schedule), schedule.is_over)


@dataclass
class Store:
    """What is on the disk, as the ledger stores it."""

    rules: JobRules
    waiting: dict[int, PendingTask]
    running: dict[int, PendingTask] = field(default_factory=dict)
    over: dict[int, str] = field(default_factory=dict)
    begun: int = 0

    def take_up(self) -> Schedule:
        """Starts another process on the job."""
        for standing in self.running.values():
            self.put(standing.position, lost(standing, 0.0), "lost")
        self.running = {}
        return Schedule(self.rules, self.waiting.values())

    def put(self, position: int, after: PendingTask | None, verdict: str) -> None:
        if after is not None:
            self.waiting[position] = after
        else:
            assert position not in self.over
            self.over[position] = verdict


VERDICTS: list[Verdict] = ["over", "failed", "lost", "crowded"]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 6),
    rules=st.builds(JobRules, concurrency=st.integers(1, 3), attempts=st.integers(1, 3)),
    data=st.data(),
)
def test_killed_at_any_point(count: int, rules: JobRules, data: st.DataObject) -> None:
    """However attempts end, and wherever processes are killed: each task ends exactly once, within its number of
    attempts; never do more run at once than may, and never one twice.
    """
    store = Store(rules, {standing.position: standing for standing in tasks(count)})
    schedule, now, kills = store.take_up(), 0.0, 0
    for _ in range(2_000):
        if schedule.is_over:
            break
        for standing in schedule.start(now, data.draw(st.integers(1, 3), "room")):
            assert standing.position not in store.running
            store.waiting.pop(standing.position)
            store.running[standing.position] = standing
            store.begun += 1
        assert len(store.running) == schedule.running <= rules.concurrency
        if kills < 6 and data.draw(st.integers(0, 9), "killed") == 0:
            schedule, kills = store.take_up(), kills + 1
            continue
        if store.running:
            position = data.draw(st.sampled_from(sorted(store.running)), "ends")
            verdict: Verdict = data.draw(st.sampled_from(VERDICTS), "how")
            before = store.running.pop(position)
            after = schedule.ended(position, verdict, now)
            assert verdict != "over" or after is None
            assert verdict != "crowded" or after == before
            store.put(position, after, verdict)
        next_at = schedule.next_at(now)
        now = now if next_at is None else max(now, next_at)
    if schedule.is_over:
        assert set(range(1, count + 1)) == set(store.over)
        assert ({}, {}) == (store.waiting, store.running)
    assert set(range(1, count + 1)) == {*store.over, *store.waiting, *store.running}
