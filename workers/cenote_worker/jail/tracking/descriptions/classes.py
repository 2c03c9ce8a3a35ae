"""Which module a class belongs to, where its instances keep what they hold, and which classes an abstract class
counts as its own.
"""

from __future__ import annotations

import abc
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType, GetSetDescriptorType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_KEPT = 5_000
_HEAP_TYPE = 1 << 9
_COLLECTED = 1 << 14

_HIDING: Final = frozenset(("pyarrow", "numpy", "duckdb", "sqlite3"))
"""Libraries whose objects are partly those of C and C++, which refer to Python's behind its back."""

_KEEPING_DATA: Final = frozenset(("sklearn", "scipy", "pandas", "matplotlib"))
"""Libraries whose opaque objects have numbers of their own."""

_DATA_OF_POLARS: Final = frozenset(("PyDataFrame", "PySeries"))

_PYTHONS: Final = (CodeType, range, type(iter(range(0))), type(iter(range(2**64))))
"""Types of Python itself whose instances the garbage collector is not told of."""

_PUBLIC: Final = {"_decimal": "decimal"}
"""Modules in C whose functions say that they are of these, from Python 3.13 on, by what people know them as."""

CONTENTS = (
    OrderedDict, defaultdict, dict, deque, list, tuple, set, frozenset, int, float, complex, str, bytes, bytearray,
    BaseException, SimpleNamespace, type,
)  # fmt: skip
"""Built-in classes whose own content is known, when a class of Python is derived from them."""

mro = type.__dict__["__mro__"].__get__
qualname = type.__dict__["__qualname__"].__get__
_flags = type.__dict__["__flags__"].__get__
_size = type.__dict__["__basicsize__"].__get__
_base = type.__dict__["__base__"].__get__
_dict = type.__dict__["__dict__"].__get__
_module = type.__dict__["__module__"].__get__
_modules = sys.modules


def attributes(cls: type) -> Mapping[str, Any]:
    """What the class itself defines, whatever its metaclass says."""
    found: Mapping[str, Any] = _dict(cls)
    return found


def is_class(value: object) -> bool:
    return type in mro(type(value))


def module_of(cls: type) -> str:
    try:
        found = _module(cls)
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def public_name(dotted: str) -> str:
    """Of the module that a function says it is of: what people know it as."""
    return _PUBLIC.get(dotted, dotted)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLayout:
    """content: the built-in class among the bases that has content. slots: getters by name. table: of `__dict__`.

    opaque: instances have content that is neither.
    """

    content: type | None
    slots: tuple[tuple[str, Callable[[object], object]], ...]
    table: Callable[[object], dict[str, object]] | None
    opaque: bool


class Classes:
    """What is known of the classes seen last."""

    def __init__(self) -> None:
        self._layouts: OrderedDict[int, tuple[type, InstanceLayout]] = OrderedDict()
        self._library: dict[int, type] = {}

    def layout(self, cls: type) -> InstanceLayout:
        known = self._layouts.get(id(cls))
        if known is not None and known[0] is cls:
            return known[1]
        layout = _layout(cls)
        if not _sets_slots_later(cls):
            self._layouts[id(cls)] = cls, layout
        if len(self._layouts) > _KEPT:
            self._layouts.popitem(last=False)
        return layout

    def is_library(self, cls: type, own_modules: Mapping[str, ModuleType]) -> bool:
        """Whether the class is an attribute of an imported module that is not the user's."""
        if self._library.get(id(cls)) is cls:
            return True
        found = not _flags(cls) & _HEAP_TYPE or _is_exported(cls, own_modules)
        if found and len(self._library) < _KEPT:
            self._library[id(cls)] = cls
        return found


def can_be_set_on(cls: type) -> bool:
    """Not a class that is built into the interpreter or a library of C."""
    return bool(_flags(cls) & _HEAP_TYPE)


def _is_exported(cls: type, own_modules: Mapping[str, ModuleType]) -> bool:
    home = module_of(cls)
    if home in ("__main__", "") or home in own_modules:
        return False
    found: object = _modules.get(home)
    for part in qualname(cls).split("."):
        if type(found) is ModuleType or (found is not None and is_module(found)):
            found = vars(found).get(part)
        elif found is not None and is_class(found):
            found = attributes(found).get(part)  # type: ignore[arg-type]
        else:
            return False
    # A library may export a class under another name than its own, or under none; then its module's word counts.
    return found is cls or (home in _modules and "<locals>" not in qualname(cls))


def tells_what_it_holds(cls: type) -> bool:
    """Whether the garbage collector is told of all that an instance refers to. Types of the standard library tell, or
    refer to nothing; in another one it may be an object of C or C++ that does. Of some of these `builtins` is said to
    be the module."""
    home = module_of(cls)
    top = home.partition(".")[0].lstrip("_")
    if top in _KEEPING_DATA or cls.__name__ in _DATA_OF_POLARS or any(cls is each for each in _PYTHONS):
        return True
    if top in _HIDING:
        return False
    standard = home.partition(".")[0] in sys.stdlib_module_names and home != "builtins"
    return standard or _is_collected(cls)


def _is_collected(cls: type) -> bool:
    return bool(_flags(cls) & _COLLECTED)


def is_module(value: object) -> bool:
    return ModuleType in mro(type(value))


def _sets_slots_later(cls: type) -> bool:
    """A class of the user's may be given a `__dict__` or a descriptor at any time."""
    return module_of(cls) in ("__main__", "")


def _layout(cls: type) -> InstanceLayout:
    slots: list[tuple[str, Callable[[object], object]]] = []
    table, content, opaque = None, None, False
    for base in mro(cls):
        if base is object:
            continue
        if not made_by_python(base):
            content = next((known for known in CONTENTS if known is base), None)
            if content is None and BaseException in mro(base):
                content = BaseException
            opaque = content is None
            break
        for name, value in attributes(base).items():
            if type(value) is MemberDescriptorType:
                slots.append((name, value.__get__))
            elif name == "__dict__" and table is None:
                table = value.__get__ if type(value) is GetSetDescriptorType else None
                opaque = opaque or table is None
    if table is None and content in (BaseException, SimpleNamespace):
        assert content is not None
        table = attributes(content)["__dict__"].__get__
    return InstanceLayout(content=content, slots=tuple(slots), table=table, opaque=opaque)


def made_by_python(cls: type) -> bool:
    """Whether a class adds nothing to its base but slots, a dictionary and weak references."""
    if not _flags(cls) & _HEAP_TYPE:
        return False
    own = attributes(cls)
    fields = sum(type(value) is MemberDescriptorType for value in own.values())
    fields += ("__dict__" in own) + ("__weakref__" in own)
    return bool(_size(cls) - _size(_base(cls)) <= 8 * fields)


ABSTRACT: Final = "_abc_impl"
"""The attribute by which a class is known to be one."""

_dump: Any = abc._get_dump  # type: ignore[attr-defined]
_subclasses = type.__dict__["__subclasses__"]
_token = abc.get_cache_token


def registered_with(cls: type) -> list[type]:
    """Those that were registered with it, or with a class derived from it: these count as well."""
    found, waiting = dict[int, type](), [cls]
    done = set[int]()
    while waiting:
        asked = waiting.pop()
        if id(asked) in done:
            continue
        done.add(id(asked))
        waiting.extend(_subclasses(asked))
        if ABSTRACT in type.__dict__["__dict__"].__get__(asked):
            found |= {id(each): each for each in _alive(_dump(asked)[0])}
    return _in_order(found.values())


def answers_of(cls: type) -> tuple[list[type], list[type]]:
    """Classes that it has found to be its own, and those that it has found not to be, and will say so again."""
    _, own, others, token = _dump(cls)
    return _in_order(_alive(own)), _in_order(_alive(others)) if token == _token() else []


def _alive(references: Iterable[weakref.ref[type]]) -> list[type]:
    return [cls for each in references if (cls := each()) is not None]


def _in_order(classes: Iterable[type]) -> list[type]:
    """One that does not hang on addresses, as that of a set of classes does."""
    return sorted(classes, key=lambda cls: (module_of(cls), qualname(cls)))
