"""What frames share: indexes, and the memory of columns.

pandas gives one index to many frames. Only its names and its frequency can change, which then show in all frames. So
frames are brought over one by one, and not as one group with all that share an index. A frame that is brought over
alone takes the index of the other frames.

Columns that share memory record that, and are copied before they are written to. pandas does not pickle the record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


Holder = tuple[Any, int]
"""A manager of columns and the number of a block in it, or an index and -1."""


def sharing(met: Iterable[object]) -> list[list[Holder]]:
    """The blocks and indexes among these objects that share memory, in groups."""
    pandas: Any = sys.modules.get("pandas")
    if pandas is None:
        return []
    managers, indexes = pandas.core.internals.managers.BaseBlockManager, pandas.Index
    found = dict[int, list[Holder]]()
    for each in met:
        bases = mro(type(each))
        if managers in bases:
            for number, block in enumerate(getattr(each, "blocks", ())):
                found.setdefault(id(getattr(block, "refs", None)), []).append((each, number))
        elif indexes in bases:
            found.setdefault(id(getattr(each, "_references", None)), []).append((each, -1))
    found.pop(id(None), None)
    return [group for group in found.values() if len(group) > 1 and any(number >= 0 for _, number in group)]


def share(group: list[Holder], _: None) -> None:
    """Has the rebuilt columns know that they share memory."""
    blocks = [holder.blocks[number] for holder, number in group if number >= 0]
    for block in blocks[1:]:
        block.refs = blocks[0].refs
        block.refs.add_reference(block)
    for index in (holder for holder, number in group if number < 0):
        index._references = blocks[0].refs
        index._references.add_index_reference(index)


def _axes(value: object) -> Iterator[Any]:
    """The axes of a frame or a series, without calling a user's class."""
    pandas = sys.modules.get("pandas")
    kinds = (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None))
    if any(kind in mro(type(value)) for kind in kinds if kind is not None):
        manager = object.__getattribute__(value, "__dict__").get("_mgr")
        yield from getattr(manager, "axes", ())
