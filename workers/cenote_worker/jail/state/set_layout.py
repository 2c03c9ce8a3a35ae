"""Rebuilds a set slot by slot.

A pickle restores a set's members, not its layout: members that wanted the same slot may be swapped, and the table may
have another size. Both affect the iteration order, now or when more are added. So a recipe accompanies each set whose
layout would change: members in the slot of their hash, in any order, and stand-ins in all other slots that were ever
taken. Then each displaced member takes the place of its stand-in, since all slots before that are taken. Stand-ins of
removed members are removed, since members added later avoid these slots.

Only for members whose hash runs no user code: they are hashed more often than in a full run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from cenote_worker.process.memory_unsafe import IS_READABLE, REMOVED, head_of, table_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SMALLEST: Final = 8
"""Slots of a new set's table."""

_MOST_SLOTS: Final = 2**20
"""Slots of a table that is inspected slot by slot, which takes about a second at this size."""

_FEW_FOR_TWICE: Final = 5
"""Members from which on an empty set, updated from a dictionary, gets more than twice as many slots."""

_MOST_FOR_FOURFOLD: Final = 50_000
"""Members up to which a set, when removed slots are cleared, gets more than four times as many slots."""

_PLAIN: Final = frozenset((int, str, bytes, bool, complex, type(None), date, datetime, time, timedelta))


class Recipe(NamedTuple):
    """size: slots. finger: where the next `pop` begins. removed: slots of removed members. members: in insertion
    order. late: slots of the last ones, which stand-ins have first; those of a 0.1 recipe are added in order."""

    size: int
    finger: int
    removed: list[int]
    members: list[object]
    late: Sequence[int] = ()


class _StandIn:
    """An object that is equal to nothing else, and has any given hash."""

    __slots__ = ("_hash",)

    def __init__(self, number: int) -> None:
        self._hash = number

    def __hash__(self) -> int:
        return self._hash


def recipe_for(value: set[Any]) -> Recipe | None:
    """How to restore the set's layout from a pickle; None if that is not needed, or no way is known."""
    if not IS_READABLE or head_of(value).mask >= _MOST_SLOTS or not all(map(_is_plain, value)):
        return None
    unpickled = set[Any]()
    unpickled.update(list(value))
    if is_alike(unpickled, value):
        return None
    recipe = _recipe(value)
    if recipe is None:
        return None
    made = set[Any]()
    follow(made, recipe)
    return recipe if is_alike(made, value) else None


def follow(value: set[Any], recipe: Recipe) -> None:
    """Gives the set the recipe's layout, in a process in which its members have the same hashes."""
    value.clear()
    if recipe.finger:
        _point(value, recipe.finger)
    stand_ins = [_StandIn(recipe.size + slot) for slot in recipe.removed]
    in_place = [_StandIn(recipe.size + slot) for slot in recipe.late]
    first = len(recipe.members) - len(in_place)
    members = [*stand_ins, *in_place, *recipe.members[:first]]
    if recipe.size > _SMALLEST:
        _make_room(value, members, recipe.size)
    value.update(members)
    for stand_in, member in zip(in_place, recipe.members[first:], strict=True):
        value.discard(stand_in)
        value.add(member)  # all slots before that one are taken
    for stand_in in stand_ins:  # one by one: many at once would be swept out
        value.discard(stand_in)


def _is_plain(member: object) -> bool:
    kind = type(member)
    if kind is float:
        return member == member  # a NaN is found by identity
    return kind in _PLAIN or (kind in (tuple, frozenset) and all(map(_is_plain, member)))  # type: ignore[call-overload]


def is_alike(one: set[Any], other: set[Any]) -> bool:
    """Whether two sets of the same objects have the same layout."""
    here, there = head_of(one), head_of(other)
    return here._replace(address=there.address) == there and table_of(here) == table_of(there)


def _recipe(value: set[Any]) -> Recipe | None:
    head = head_of(value)
    words = table_of(head)
    taken = [(slot, number) for slot, number in enumerate(words[1::2]) if words[2 * slot]]
    removed = [slot for slot, number in taken if number == REMOVED]
    members = iter(value)
    placed = [(slot, number, next(members)) for slot, number in taken if number != REMOVED]
    at_home = [member for slot, number, member in placed if number & head.mask == slot]
    astray = {slot: member for slot, number, member in placed if number & head.mask != slot}
    if not _can_make_room(head.filled, head.mask + 1):
        return None
    return Recipe(head.mask + 1, head.finger, removed, at_home + list(astray.values()), list(astray))


def _can_make_room(count: int, size: int) -> bool:
    """Whether `_make_room` works for that many members."""
    return size == _SMALLEST or count >= _at_once(size) or size // 8 <= min(count, _MOST_FOR_FOURFOLD)


def _at_once(size: int) -> int:
    return max(_FEW_FOR_TWICE, size // 4)


def _make_room(value: set[Any], members: list[object], size: int) -> None:
    """Gives an empty set that many slots, and the first of these members."""
    if len(members) >= _at_once(size):
        value.update(dict.fromkeys(members[: _at_once(size)]))
        return
    first = members[: size // 8]
    swept = [object() for _ in range(size // 2 - 1 - len(first))]
    value.update(dict.fromkeys((*first, *swept)))
    value.difference_update(swept)  # of so many none leaves a trace


def _point(value: set[Any], finger: int) -> None:
    """Sets where the next `pop` of an empty set begins, as former pops have left it."""
    size = _SMALLEST * 2
    while size < 2 * finger:
        size *= 2
    value.update(dict.fromkeys(map(_StandIn, range(finger - 1, finger - 1 + _at_once(size)))))
    value.pop()
    value.clear()


def recipes_for(met: Iterable[object]) -> list[tuple[set[Any], Recipe]]:
    """The recipes for all sets among these objects that need one."""
    found = [(value, recipe_for(value)) for value in met if type(value) is set]
    return [(value, recipe) for value, recipe in found if recipe is not None]
