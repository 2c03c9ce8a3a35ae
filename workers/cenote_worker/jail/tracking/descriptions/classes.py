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
"""Libraries whose objects are partly C or C++ objects, with references to Python objects that Python does not
know."""

_KEEPING_DATA: Final = frozenset(("sklearn", "scipy", "pandas", "matplotlib"))
"""Libraries whose opaque objects contain numbers."""

_DATA_OF_POLARS: Final = frozenset(("PyDataFrame", "PySeries"))

_PYTHONS: Final = (CodeType, range, type(iter(range(0))), type(iter(range(2**64))))
"""Types of Python itself whose instances the garbage collector does not track."""

_PUBLIC: Final = {"_decimal": "decimal"}
"""Public names of modules in C, which their functions report since Python 3.13."""

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
    """The class's own attributes, independent of its metaclass."""
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
    """The public name of the module that a function reports."""
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
    """Cached facts about recent classes."""

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
    """False for a class that is built into the interpreter or a C library."""
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
    if found is cls:
        return True
    if home not in _modules or "<locals>" in qualname(cls):
        return False
    # A library may export a class under another name, and one written in C under none. A class of Python that its
    # module does not have was made by a call, which may have been the user's: `dataclasses.make_dataclass` says
    # `types`.
    return not made_by_python(cls) or any(each is cls for each in list(vars(_modules[home]).values()))


def tells_what_it_holds(cls: type) -> bool:
    """Whether the garbage collector knows all references of an instance. Types of the standard library report them,
    or have none; in other libraries a C or C++ object may have hidden ones. Some of these report `builtins` as their
    module."""
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
    """Whether a class may get a `__dict__` or a descriptor at any time, as a user's class may."""
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
"""The attribute that identifies an abstract class."""

_dump: Any = abc._get_dump  # type: ignore[attr-defined]
_subclasses = type.__dict__["__subclasses__"]
_token = abc.get_cache_token


def registered_with(cls: type) -> list[type]:
    """Classes registered with it, or with a class derived from it, which count as well."""
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
    """Classes that it has found to be its own, and those that it has found not to be, from its caches."""
    _, own, others, token = _dump(cls)
    return _in_order(_alive(own)), _in_order(_alive(others)) if token == _token() else []


def _alive(references: Iterable[weakref.ref[type]]) -> list[type]:
    return [cls for each in references if (cls := each()) is not None]


def _in_order(classes: Iterable[type]) -> list[type]:
    """Sorted independently of addresses, unlike a set of classes."""
    return sorted(classes, key=lambda cls: (module_of(cls), qualname(cls)))
