"""Which snapshot is dropped first."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.zygote.warden.snapshot_store import Candidate, expendable

STEPS = st.lists(st.integers(0, 10_000), min_size=2, max_size=20, unique=True).map(sorted)


def steps(*numbers: int, labelled: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(step=number, labelled=number in labelled) for number in numbers]


def test_the_crowded_past_is_thinned_first() -> None:
    """Of equal gaps the older one goes; a wide gap is not made wider."""
    assert 1 == expendable(steps(0, 1, 2, 3, 4))
    assert 2 == expendable(steps(0, 100, 101, 102, 103))


def test_the_first_the_last_and_labels_stay() -> None:
    assert 2 == expendable(steps(0, 1, 2, 3, labelled=(1,)))
    assert 0 == expendable(steps(0, 1, 2, labelled=(1,)))
    assert 0 == expendable(steps(0, 1))


def test_no_choice() -> None:
    assert None is expendable(steps(5))
    assert None is expendable([])


@given(STEPS)
def test_the_newest_never_goes(numbers: list[int]) -> None:
    """A crash falls back to it."""
    assert len(numbers) - 1 != expendable(steps(*numbers))


def test_the_far_past_stays_within_reach() -> None:
    """After a thousand steps with eight snapshots, their ages grow from one to the next by a bounded factor."""
    kept: list[int] = []
    for step in range(1_000):
        kept.append(step)
        if len(kept) > 8:
            del kept[expendable(steps(*kept)) or 0]
    ages = [999 - step for step in reversed(kept)]
    assert (0, 999) == (ages[0], ages[-1])
    assert ages[1] <= 2
    assert all(older <= 8 * max(younger, 1) for younger, older in pairwise(ages[1:]))
