"""Which cells get no copy, since the copies before earlier ones were lost."""

from __future__ import annotations

import pytest

from cenote_worker.jail.snapshots.cost_forecast import MANY_ITEMS, MOST_CELLS_WITHOUT, CostlyNames

CODE = "n = sum(map(len, many))"


def costly(value: object) -> CostlyNames:
    """Two consecutive cells have lost theirs."""
    names = CostlyNames({"many": value, "few": [1]})
    for _ in range(2):
        assert not names.foresees(CODE)
        names.ran(CODE, lost=True)
    return names


def test_those_behind_two_in_a_row() -> None:
    """With each further loss their number doubles; never more than the limit in a row."""
    names = costly([None] * MANY_ITEMS)
    for expected in (2, 4, 8, MOST_CELLS_WITHOUT, MOST_CELLS_WITHOUT):
        foreseen = 0
        while names.foresees(CODE):
            foreseen += 1
        assert expected == foreseen
        names.ran(CODE, lost=True)


@pytest.mark.parametrize("code", ["x = 1", "few + [2]", "manyfold", "x" * 20_001 + CODE])
def test_other_cells_get_one(code: str) -> None:
    """They do not mention it, or are too long to be searched."""
    names = costly([None] * MANY_ITEMS)
    assert not names.foresees(code)
    assert names.foresees("print(many[0])")


def test_one_that_was_kept_ends_it() -> None:
    """The next loss counts as the first again."""
    names = costly(dict.fromkeys(range(MANY_ITEMS)))
    while names.foresees(CODE):
        pass
    names.ran(CODE, lost=False)
    names.ran(CODE, lost=True)
    assert not names.foresees(CODE)


@pytest.mark.parametrize("value", [[None] * (MANY_ITEMS - 1), "x" * MANY_ITEMS, bytearray(MANY_ITEMS), None])
def test_only_containers_of_many_objects_count(value: object) -> None:
    """At the limit, and one less."""
    assert not costly(value).foresees(CODE)


def test_another_container_under_the_name_is_another() -> None:
    """It has not caused a loss."""
    namespace: dict[str, object] = {"many": [None] * MANY_ITEMS}
    names = CostlyNames(namespace)
    for _ in range(2):
        names.ran(CODE, lost=True)
    former, namespace["many"] = namespace["many"], [None] * MANY_ITEMS
    assert not names.foresees(CODE)
    namespace["many"] = former
    assert names.foresees(CODE)
