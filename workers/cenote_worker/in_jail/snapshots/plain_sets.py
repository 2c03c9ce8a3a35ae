"""Sets, told so that another one lies in memory as they do: in what order one gives what it holds, and will give what
is added to it, depends on what it has held before.
"""

from __future__ import annotations

from typing import Any

from cenote_worker.in_jail.carrying.set_recipes import Recipe, follow, is_alike, recipe_for
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.set_tables_unsafe import IS_READABLE

__builtins__ = BUILTINS

Told = tuple[list[object], tuple[int, int, list[int]] | None]
"""Members in the order in which to add them; what else a recipe says, if it takes one."""


def told_of(value: set[Any]) -> Told | None:
    """None where no way is known. All members are plain."""
    if not IS_READABLE:
        return None
    recipe = recipe_for(value)
    told: Told = (list(value), None) if recipe is None else (recipe.members, recipe[:3])
    return told if is_alike(rebuilt(told), value) else None


def rebuilt(told: Told) -> set[Any]:
    """In a process in which the members have the hashes that they had there."""
    members, recipe = told
    value = set[Any]()
    if recipe is None:
        value.update(members)
    else:
        follow(value, Recipe(*recipe, members))
    return value
