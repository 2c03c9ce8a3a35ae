"""What may be looked at is counted: the same step is seen in the same way on an idle machine and on a busy one."""

from __future__ import annotations

import pytest

from cenote_worker.tracking.budget import Budget, TooDear

SECONDS = 0.06

OBJECTS = 30_000


def test_objects_are_counted() -> None:
    """At the limit, and one more."""
    budget = Budget(SECONDS)
    for _ in range(10):
        budget.spend(OBJECTS // 10)
    budget.check()
    budget.spend(1)
    with pytest.raises(TooDear):
        budget.check()


def test_bytes_are_counted() -> None:
    """All that are hashed, small ones as well; those are never too many."""
    budget = Budget(SECONDS)
    assert budget.allows(300_000_000)
    assert budget.has_room(200_000_000)
    assert not budget.has_room(400_000_000)
    assert not budget.allows(400_000_000)
    assert budget.allows(1000)
