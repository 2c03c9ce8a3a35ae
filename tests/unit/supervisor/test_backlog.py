"""A producer that was stopped continues, whatever it adds in the meantime."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.process.threads import Backlog

LIMIT = 8


def test_what_a_stopped_producer_still_adds() -> None:
    """Additions between half the limit and the limit do not cancel the stop."""
    backlog = Backlog(LIMIT)
    assert not backlog.add(LIMIT + 1)
    assert not backlog.take(3)
    assert not backlog.add(0)
    assert backlog.take(2)
    assert backlog.add(1)


@given(st.lists(st.integers(0, 6), max_size=30), st.randoms(use_true_random=False))
def test_all_that_is_stopped_goes_on(sizes: list[int], random: Random) -> None:
    """With any order of adding and taking: a producer is stopped from above the limit down to half of it."""
    backlog, waiting, stopped = Backlog(LIMIT), list[int](), False
    for size in sizes:
        waiting.append(size)
        stopped = stopped or sum(waiting) > LIMIT
        assert stopped is not backlog.add(size)
        while waiting and random.random() < 0.5:
            resumed = backlog.take(waiting.pop(0))
            assert resumed is (stopped and sum(waiting) <= LIMIT // 2)
            stopped = stopped and not resumed
    for left in range(len(waiting)):
        stopped = stopped and not backlog.take(waiting[left])
    assert not stopped


def test_what_is_not_wanted_any_more() -> None:
    backlog = Backlog(LIMIT)
    backlog.add(LIMIT + 1)
    assert [True, False] == [backlog.clear(), backlog.clear()]
