"""What may be looked at is counted: the same step is seen in the same way on an idle machine and on a busy one."""

from __future__ import annotations

import pytest

from cenote_worker.tracking.budget import Budget, TooDear
from cenote_worker.tracking.packing_unsafe import digest_of_numbers

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


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([*range(100), -1, 2**31 - 1, -(2**31)], id="integers"),
        pytest.param((0.0, -0.0, float("inf"), 1e300), id="floats"),
    ],
)
def test_numbers_are_known_by_their_bytes(values: list[object]) -> None:
    """By their order, types and signs."""
    digest = digest_of_numbers(values)
    assert digest
    assert digest == digest_of_numbers(type(values)(list(values)))
    for others in (values[::-1], values[:-1], [*values, values[-1]], [values[0], values[0], *values[2:]]):
        assert digest != digest_of_numbers(type(values)(others))


@pytest.mark.parametrize(
    "odd", [True, 2**31, float("nan"), (105, 6), "iiii", b"iiii", None, object(), [1], 1j]
)
@pytest.mark.parametrize("number", [7, 7.0])
def test_what_is_no_such_number_is_found_among_them(number: float, odd: object) -> None:
    """Wherever it is, and whatever its bytes look like: then all are asked."""
    assert "" == digest_of_numbers([number] * 50 + [odd] + [number] * 50)


def test_what_would_be_too_much_is_not_begun_with() -> None:
    """At the limit, and one more."""
    budget = Budget(SECONDS)
    budget.foresee(OBJECTS)
    with pytest.raises(TooDear):
        budget.foresee(OBJECTS + 1)
