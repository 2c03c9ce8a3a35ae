"""Rebuilt sets have the same memory layout, for any history."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cenote_worker.jail.state.set_layout import follow, recipe_for, recipes_for
from cenote_worker.process.memory_unsafe import IS_READABLE, head_of, table_of

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 19, 20, 60, 77, 78, 307, 400, 1300, 5000)
chance = Random(7)

KEYS: tuple[Callable[[], Any], ...] = (
    lambda: f"{chance.getrandbits(40):x}",
    lambda: chance.choice((chance.getrandbits(60), chance.randrange(-100, 5000))),
    lambda: (chance.getrandbits(20), f"{chance.getrandbits(9):x}"),
)


def added(keys: list[Any]) -> set[Any]:
    found = set[Any]()
    for key in keys:
        found.add(key)
    return found


def removed(keys: list[Any]) -> set[Any]:
    found = set(keys)
    for key in keys[::3]:
        found.discard(key)
    return found


def worked_off(keys: list[Any]) -> set[Any]:
    found = set(keys)
    for _ in range(len(found) // chance.choice((1, 3))):
        found.pop()
    return found


def worked_on(keys: list[Any]) -> set[Any]:
    """Members were removed and more were added later."""
    found = worked_off(keys[::2])
    found.update(keys[1::2])
    return found


WAYS: dict[str, Callable[[list[Any]], set[Any]]] = {
    "added": added,
    "from a list": set,
    "from a dictionary": lambda keys: set(dict.fromkeys(keys)),
    "a copy": lambda keys: set(set(keys)),
    "a union": lambda keys: set(keys[::2]) | set(keys[1:]),
    "a difference": lambda keys: set(keys) - set(keys[::2]),
    "what is left": lambda keys: set(keys).difference(keys[::5]),
    "removed": removed,
    "worked off": worked_off,
    "worked on": worked_on,
}


def lies(value: set[Any]) -> tuple[object, ...]:
    head = head_of(value)
    return (*head._replace(address=0), table_of(head).tolist())


def unpickled(value: set[Any]) -> set[Any]:
    """The set as a pickle returns it, with the same members."""
    found = set[Any]()
    found.update(list(value))
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("way", WAYS)
def test_sets_come_to_lie_as_they_did(way: str) -> None:
    """So later operations behave the same, which is tested."""
    changed = 0
    for size in SIZES:
        for _ in range(max(1, 400 // size)):
            key = chance.choice(KEYS)
            value = WAYS[way]([key() for _ in range(size)])
            made = unpickled(value)
            if lies(made) != lies(value):
                changed += 1
                recipe = recipe_for(value)
                assert recipe is not None
                follow(made, recipe)
            else:
                assert recipe_for(value) is None
            assert lies(value) == lies(made)
            for _ in range(5):
                more = key()
                value.add(more)
                made.add(more)
                assert list(value) == list(made)
                assert value.pop() == made.pop()
    assert changed


class Counted:
    """Its own code runs when it is put into a set."""

    calls = 0

    def __hash__(self) -> int:
        Counted.calls += 1
        return 5


@pytest.mark.parametrize(
    "member",
    [Counted(), (1, Counted()), float("nan"), Random],
    ids=("an object", "in a tuple", "nan", "a class"),
)
def test_members_that_run_code_or_are_found_by_what_they_are_have_no_recipe(member: Any) -> None:
    value = {member, *"abcdefghi"}
    value.discard("a")
    before = Counted.calls
    assert recipe_for(value) is None
    assert before == Counted.calls


def test_a_set_that_is_too_large_to_be_looked_at_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit, and one past it."""
    value = set(dict.fromkeys(map(str, range(7))))
    value.discard("0")
    assert IS_READABLE
    assert 15 == head_of(value).mask
    for most, there in ((16, True), (15, False)):
        monkeypatch.setattr("cenote_worker.jail.state.set_layout._MOST_SLOTS", most)
        assert there == (recipe_for(value) is not None)


def test_of_many_objects_only_sets_that_need_one_have_one() -> None:
    value = {*"abcdefghi"}
    value.pop()
    assert [value] == [found for found, _ in recipes_for([value, "x", {3}, frozenset("abc"), [value]])]
