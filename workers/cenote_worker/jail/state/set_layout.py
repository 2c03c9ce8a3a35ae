"""How a set is put together again, slot for slot.

A pickle gives back what a set holds, not how it lies there: members that wanted the same slot may change places, and
the table may have another size. Both tell in which order a program meets them, now or when more are added. So a
recipe goes along with each set that would come out otherwise: members that have the slot of their hash first, in any
order, then those that were displaced, each behind what was in its way. Where members were removed, stand-ins are put
in and removed again, since whatever is added later goes around the places that they leave.

Only members whose hash runs no code of the user's: they are hashed more often than in a full run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from cenote_worker.process.memory_unsafe import IS_READABLE, REMOVED, head_of, table_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SMALLEST: Final = 8
"""Slots of the table that every set begins with."""

_MOST_SLOTS: Final = 2**20
"""Of a table that is looked at slot by slot, which takes about a second then."""

_FEW_FOR_TWICE: Final = 5
"""Members from which on an empty set makes room for a dictionary: more than twice as many slots."""

_MOST_FOR_FOURFOLD: Final = 50_000
"""Members up to which a set that is rid of removed ones gets more than four times as many slots."""

_LINEAR: Final = 9
"""So many slots behind the first one are looked at before one elsewhere, by further bits of the hash."""

_SHIFT: Final = 5
_WORD: Final = (1 << 64) - 1

_PLAIN: Final = frozenset((int, str, bytes, bool, complex, type(None), date, datetime, time, timedelta))


class Recipe(NamedTuple):
    """size: slots. finger: where the next `pop` begins. removed: slots of members that went. members: in the order in
    which they are put in."""

    size: int
    finger: int
    removed: list[int]
    members: list[object]


class _StandIn:
    """What is equal to nothing else, and has any hash."""

    __slots__ = ("_hash",)

    def __init__(self, number: int) -> None:
        self._hash = number

    def __hash__(self) -> int:
        return self._hash


def recipe_for(value: set[Any]) -> Recipe | None:
    """How the set comes out of a pickle as it is; None where it does so anyway, or where no way is known."""
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
    """Makes the set what the recipe is for, in a process in which its members have the hashes that they had there."""
    value.clear()
    if recipe.finger:
        _point(value, recipe.finger)
    stand_ins = [_StandIn(recipe.size + slot) for slot in recipe.removed]
    members = [*stand_ins, *recipe.members]
    if recipe.size > _SMALLEST:
        _make_room(value, members, recipe.size)
    value.update(members)
    for stand_in in stand_ins:  # one by one: many at once would be swept out
        value.discard(stand_in)


def _is_plain(member: object) -> bool:
    kind = type(member)
    if kind is float:
        return member == member  # a NaN is found by being the same object
    return kind in _PLAIN or (kind in (tuple, frozenset) and all(map(_is_plain, member)))  # type: ignore[call-overload]


def is_alike(one: set[Any], other: set[Any]) -> bool:
    """Whether two sets of the same objects lie alike."""
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
    astray = {slot: (number, member) for slot, number, member in placed if number & head.mask != slot}
    displaced = _in_order(astray, {slot for slot, _ in taken}, head.mask)
    if displaced is None or not _can_make_room(head.filled, head.mask + 1):
        return None
    return Recipe(head.mask + 1, head.finger, removed, at_home + displaced)


def _in_order(astray: dict[int, tuple[int, object]], taken: set[int], mask: int) -> list[object] | None:
    """Members that have not the slots of their hashes, each behind those that were in its way.

    None where that cannot be: one has come to where another had been removed, and they stand in each other's way.
    """
    waiting, blocking = dict[int, int](), dict[int, list[int]]()
    for slot, (number, _) in astray.items():
        before = set[int]()
        for passed in _slots(number, mask):
            if passed == slot:
                break
            if passed not in taken:
                return None
            before.add(passed)
        others = before & astray.keys()
        waiting[slot] = len(others)
        for other in others:
            blocking.setdefault(other, []).append(slot)
    ready = [slot for slot, others in waiting.items() if not others]
    for slot in ready:  # which grows meanwhile
        for behind in blocking.get(slot, ()):
            waiting[behind] -= 1
            if not waiting[behind]:
                ready.append(behind)
    return [astray[slot][1] for slot in ready] if len(ready) == len(astray) else None


def _slots(number: int, mask: int) -> Iterator[int]:
    """Where a member with this hash is looked for, one slot after the other."""
    further, slot = number & _WORD, number & mask
    while True:
        yield from range(slot, slot + _LINEAR + 1 if slot + _LINEAR <= mask else slot + 1)
        further >>= _SHIFT
        slot = (slot * 5 + 1 + further) & mask


def _can_make_room(count: int, size: int) -> bool:
    """Whether `_make_room` does with so many members."""
    return size == _SMALLEST or count >= _at_once(size) or size // 8 <= min(count, _MOST_FOR_FOURFOLD)


def _at_once(size: int) -> int:
    return max(_FEW_FOR_TWICE, size // 4)


def _make_room(value: set[Any], members: list[object], size: int) -> None:
    """Gives an empty set so many slots, and the first of these members."""
    if len(members) >= _at_once(size):
        value.update(dict.fromkeys(members[: _at_once(size)]))
        return
    first = members[: size // 8]
    swept = [object() for _ in range(size // 2 - 1 - len(first))]
    value.update(dict.fromkeys((*first, *swept)))
    value.difference_update(swept)  # of so many none leaves a trace


def _point(value: set[Any], finger: int) -> None:
    """Has the next `pop` of an empty set begin there, as one before has left it."""
    size = _SMALLEST * 2
    while size < 2 * finger:
        size *= 2
    value.update(dict.fromkeys(map(_StandIn, range(finger - 1, finger - 1 + _at_once(size)))))
    value.pop()
    value.clear()


def recipes_for(met: Iterable[object]) -> list[tuple[set[Any], Recipe]]:
    """Of all the sets among these objects that need one."""
    found = [(value, recipe_for(value)) for value in met if type(value) is set]
    return [(value, recipe) for value, recipe in found if recipe is not None]
