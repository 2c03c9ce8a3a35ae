"""Objects of classes whose own code must not run while a pickle makes them again.

pickle asks a half-made object for `__setstate__`, and fills containers by `append` and `__setitem__`. A class with a
`__getattr__`, or with such methods of its own, does not expect that: it asks for what is not there yet, or notes each
item once more. Objects of these are filled by the methods of the built-in classes instead.
"""

from __future__ import annotations

import copyreg
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.tracking.classes import attributes, module_of, mro
from cenote_worker.tracking.own_modules import is_of_library

__builtins__ = BUILTINS

_IN_THE_WAY: Final = frozenset(
    ("__getattr__", "__getattribute__", "__new__", "__setattr__", "append", "extend", "__setitem__")
)

_FILLING: Final[tuple[tuple[type, Callable[[Any, Any], object]], ...]] = (
    (list, list.extend),
    (deque, deque.extend),
)
_SETTING: Final[tuple[tuple[type, Callable[[Any, Any, Any], object]], ...]] = (
    (OrderedDict, OrderedDict.__setitem__),
    (dict, dict.__setitem__),
)
_NEW_OBJECT: Final = copyreg.__newobj__  # type: ignore[attr-defined]


def reduced_object(value: Any) -> tuple[Any, ...] | None:
    """As `reducer_override` gives it; None where nothing of the class is in the way, or it says itself how it is
    pickled."""
    kind = type(value)
    if isinstance(value, type) or not kind.__flags__ & _HEAP or not _is_in_the_way(kind):
        return None
    if _reduces_itself(kind):
        return None
    reduced = object.__reduce_ex__(value, 5)
    if type(reduced) is str or reduced[0] is not _NEW_OBJECT or len(reduced) > 5:
        return None
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    if isinstance(value, OrderedDict):
        pairs = OrderedDict.items(value)
    elif isinstance(value, dict):
        pairs = dict.items(value)
    elif isinstance(value, list):
        items = list.__iter__(value)
    told = state, list(items) if items is not None else [], list(pairs) if pairs is not None else []
    base = next(each for each in mro(kind) if each in _BUILT_IN or not each.__flags__ & _HEAP)
    if base in _BUILT_IN:
        make, arguments = made, (base, kind, *arguments[1:])
    return make, arguments, told, None, None, filled


def made(base: Any, kind: type, *arguments: object) -> object:
    """By the built-in class, whatever `__new__` a class has of its own."""
    return base.__new__(kind, *arguments)


def filled(value: Any, told: tuple[Any, list[object], list[tuple[object, object]]]) -> None:
    state, items, pairs = told
    bases = mro(type(value))
    for base, fill in _FILLING:
        if items and base in bases:
            fill(value, items)
    for base, put in _SETTING:
        if pairs and base in bases:
            for key, item in pairs:
                put(value, key, item)
            break
    if state is None:
        return
    if any("__setstate__" in attributes(base) for base in bases):
        value.__setstate__(state)
        return
    table, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    if table:
        object.__getattribute__(value, "__dict__").update(table)
    for key, item in (slots or {}).items():
        object.__setattr__(value, key, item)


_HEAP: Final = 1 << 9
_BUILT_IN: Final = frozenset((object, list, dict, deque, OrderedDict, tuple, set, frozenset))


def _is_in_the_way(kind: type) -> bool:
    """Whether the user's code would run, or that of a mock. Libraries' classes are pickled as these want it."""
    return any(
        not _IN_THE_WAY.isdisjoint(attributes(base)) and _is_of_user(module_of(base))
        for base in mro(kind)
        if base.__flags__ & _HEAP
    )


def _is_of_user(home: str) -> bool:
    module = sys.modules.get(home)
    if module is None or home in ("__main__", "unittest.mock"):
        return True
    file = getattr(module, "__file__", None)
    return type(file) is str and not is_of_library(file)


def _reduces_itself(kind: type) -> bool:
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    return any(key in attributes(base) for base in mro(kind) for key in own if base not in _BUILT_IN)
