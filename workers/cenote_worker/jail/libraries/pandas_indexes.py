"""Indexes that frames have in common: a frame that is brought over by itself takes the one that the others have.

pandas gives one index to many frames. Nothing about it changes but its names and its frequency, which then show in
all of them, so that frames are brought over one by one, and not as one group with all that have an index of theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from cenote_worker.jail.tracking.descriptions.classes import mro
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Place = tuple[str, int]
"""A variable, and which of its axes it is."""

Places = Mapping[int, tuple[Place, ...]]
"""Of indexes, by their ids."""


def places(names: Collection[str], namespace: Mapping[str, object]) -> Places:
    """Where variables that do not come along have the indexes of those that do."""
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
    """The index that one of these variables has by now, if that is equal in all respects; else one of its own."""
    own = make(*arguments)
    if state and state[0] is not None:
        own.__setstate__(*state)
    for name, number in places:
        axes = list(_axes(namespace.get(name)))
        if number < len(axes) and type(axes[number]) is type(own) and axes[number].identical(own):
            return axes[number]
    return own


def _axes(value: object) -> Iterator[Any]:
    """Of a frame or a series; nothing of what a class of the user's says of itself is asked for."""
    pandas = sys.modules.get("pandas")
    kinds = (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None))
    if any(kind in mro(type(value)) for kind in kinds if kind is not None):
        manager = object.__getattribute__(value, "__dict__").get("_mgr")
        yield from getattr(manager, "axes", ())
