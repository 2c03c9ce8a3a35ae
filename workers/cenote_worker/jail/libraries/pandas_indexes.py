"""Indexes shared by frames: a frame that is brought over alone takes the index of the other frames.

pandas gives one index to many frames. Only its names and its frequency can change, which then show in all frames. So
frames are brought over one by one, and not as one group with all that share an index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from cenote_worker.jail.tracking.descriptions.classes import mro
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Place = tuple[str, int]
"""A variable, and the number of its axis."""

Places = Mapping[int, tuple[Place, ...]]
"""Places of indexes, by id."""


def places(names: Collection[str], namespace: Mapping[str, object]) -> Places:
    """Places, in variables that do not come along, of the indexes of those that do."""
    if "pandas" not in sys.modules:
        return {}
    coming = {id(each) for name in names for each in _axes(namespace.get(name))}
    found = dict[int, tuple[Place, ...]]()
    for name, value in namespace.items() if coming else ():
        if name not in names:
            for number, each in enumerate(_axes(value)):
                if id(each) in coming:
                    found[id(each)] = (*found.get(id(each), ()), (name, number))
    return found


def rebuilt(
    namespace: Mapping[str, object],
    places: tuple[Place, ...],
    make: Callable[..., Any],
    arguments: tuple[object, ...],
    *state: object,
) -> object:
    """The current index of one of these variables, if that is equal in all respects; else a new one."""
    own = make(*arguments)
    if state and state[0] is not None:
        own.__setstate__(*state)
    for name, number in places:
        axes = list(_axes(namespace.get(name)))
        if number < len(axes) and type(axes[number]) is type(own) and axes[number].identical(own):
            return axes[number]
    return own


def _axes(value: object) -> Iterator[Any]:
    """The axes of a frame or a series, without calling a user's class."""
    pandas = sys.modules.get("pandas")
    kinds = (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None))
    if any(kind in mro(type(value)) for kind in kinds if kind is not None):
        manager = object.__getattribute__(value, "__dict__").get("_mgr")
        yield from getattr(manager, "axes", ())
