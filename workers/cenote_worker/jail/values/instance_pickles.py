"""Pickles of instances of Python classes with all their attributes, also of exceptions and libraries' own objects.

A class may define how its instances are pickled, and mostly leaves out state that another process does not need: a
cache, an attribute that a program has set. Or it requires arguments that were not kept. So an instance of a user's
class is rebuilt without calling its class: its attributes are put into an empty instance. If these cannot be pickled
(a lock, a connection), or if something other than the class creates it, the class is asked; what it leaves out comes
along as far as possible. An instance of a library's class is always made by the library. Public attributes that no
method of its class mentions come along too: a program has set these.

Exceptions keep their causes, and are made without calling their classes. Their tracebacks are left out, since these
refer to frames, which cannot be rebuilt.

Libraries' own objects that a user's name may refer to (`matplotlib.rcParams`, the generator that numpy draws from)
are stored as names: the library would not use a copy.
"""

from __future__ import annotations

import copyreg
import importlib
import logging
import opcode
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, CodeType, MemberDescriptorType, ModuleType
from typing import Any, Final

from cenote_worker.jail.tracking.process_state.modules import is_of_library
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_PYTHON_MADE: Final = 1 << 9
"""A class flag: the class was made by running code, not by the interpreter or a C library."""

_PROTOCOL: Final = frozenset(
    ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
)
_FILLING: Final = frozenset(
    ("__init__", "__setitem__", "__setattr__", "update", "append", "extend", "add", "__hash__", "__eq__")
)
"""Methods that pickle calls on an instance of a class derived from a container, directly or indirectly."""

_IMMUTABLE: Final = (int, str, float, complex, bytes, tuple, frozenset)
_CONTAINERS: Final = (list, dict, set, bytearray, deque, defaultdict)
_MAKING: Final[tuple[Any, ...]] = (
    copyreg.__newobj__,  # type: ignore[attr-defined]
    copyreg.__newobj_ex__,  # type: ignore[attr-defined]
)
_modules = sys.modules
_PLAIN: Final[Mapping[type, Callable[[Any], object]]] = {
    int: int.__int__,
    str: str.__str__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
}
_READABLE_SLOTS: Final = (str, tuple, list, dict)
_STORES: Final = opcode.opmap["STORE_ATTR"]
_attribute_of = object.__getattribute__

_Reduced = tuple[Any, ...] | str | None
_Way = Callable[[Any], _Reduced]


class InstanceReducers:
    """How the instances that one pickler meets are pickled.

    asked: classes whose instances cannot be pickled by attributes. can: whether a value can be pickled.
    """

    def __init__(self, asked: Collection[type], can: Callable[[object], bool]) -> None:
        self._asked = asked
        self._can = can
        self._ways = dict[type, _Way | None]()
        self.last: type | None = None
        """The class of the last instance that was pickled by attributes: one of these may have caused a failure."""

    def reduced(self, obj: Any) -> _Reduced:
        """As `reducer_override` returns it; None for objects that pickle handles itself."""
        kind = type(obj)
        try:
            way = self._ways[kind]
        except KeyError:
            way = self._ways[kind] = self._way(kind)
        return None if way is None else way(obj)

    def is_ordinary(self, kind: type) -> bool:
        """Whether instances of a class need no special treatment; one of them has been looked at."""
        return self._ways.get(kind, _reduced_handler) is None and all(map(is_of_the_user, kind.__mro__[:-1]))

    def _way(self, kind: type) -> _Way | None:
        if not kind.__flags__ & _PYTHON_MADE or issubclass(kind, type | BaseException | Enum):
            return None
        if issubclass(kind, logging.Handler):
            return _reduced_handler
        own = [each for each in kind.__mro__ if is_of_the_user(each)]
        says = any(_PROTOCOL & vars(each).keys() for each in own)
        library_says = says_how_to_pickle(kind)
        core = _core(kind)
        if own and not library_says and core in (object, *_IMMUTABLE, *_CONTAINERS):
            touchy = core in _CONTAINERS and any(_FILLING & vars(each).keys() for each in own)
            if kind in self._asked:
                return self._completed
            if (
                says
                or touchy
                or any(
                    "__new__" in vars(each)
                    or _sets_table(each)
                    or type(vars(each).get("__slots__", ())) not in _READABLE_SLOTS
                    for each in own
                )
            ):
                return self._bare(core, says)
        asks = hasattr(kind, "__getattr__") and not (says or library_says)
        if asks and core in (object, *_IMMUTABLE, *_CONTAINERS):
            return self._bare(core, says=False)  # pickle would call it before the instance is filled
        reduces = core.__reduce__ is not object.__reduce__ or core.__reduce_ex__ is not object.__reduce_ex__
        if kind.__dictoffset__ and (says or library_says or reduces):
            return self._completed if own else self._with_what_was_set
        return None

    def _bare(self, core: Any, says: bool) -> _Way:
        """An empty instance, and its attributes."""

        def reduced(obj: Any) -> _Reduced:
            kind = type(obj)
            if kind.__reduce__ is not core.__reduce__ or kind.__reduce_ex__ is not core.__reduce_ex__:
                asked: Any = obj.__reduce_ex__(5)
                if type(asked) is not tuple or asked[0] not in (kind, *_MAKING):
                    return self._more_than(asked, obj, lambda _make, _key: True)
            self.last = kind if says else self.last
            raw = (_copied(core, obj),) if core in _IMMUTABLE else ()
            content = _content(core, obj) if core in _CONTAINERS else None
            return bare, (kind, core, *raw), (_table(obj), dict(_slots(obj)), content), None, None, fill_bare

        return reduced

    def _completed(self, obj: Any) -> _Reduced:
        return self._with_more(obj, lambda _make, _key: True)

    def _with_what_was_set(self, obj: Any) -> _Reduced:
        kind = type(obj)
        return self._with_more(
            obj,
            lambda make, key: (
                key[:1] != "_" and (make in _MAKING or make is kind) and key not in _spoken_of(kind)
            ),
        )

    def _with_more(self, obj: Any, takes: Callable[[object, str], bool]) -> _Reduced:
        """The class's own reduction, and attributes that it leaves out."""
        ask = copyreg.dispatch_table.get(type(obj))
        return self._more_than(ask(obj) if ask is not None else obj.__reduce_ex__(5), obj, takes)

    def _more_than(self, reduced: Any, obj: Any, takes: Callable[[object, str], bool]) -> _Reduced:
        kind, table = type(obj), _table(obj)
        if type(reduced) is not tuple or not table:
            return reduced  # type: ignore[no-any-return]
        make, arguments, state, items, pairs, setter = reduced + (None,) * (6 - len(reduced))
        said = state[0] if type(state) is tuple and state else state
        said = said if type(said) is dict else {}
        more = {
            key: value
            for key, value in table.items()
            if (key not in said or said[key] is not value) and takes(make, key)
        }
        if kind in self._asked:
            more = {key: value for key, value in more.items() if self._can(value)}
        if not more:
            return tuple(reduced)
        self.last = self.last if kind in self._asked else kind
        return make, arguments, (kind, state, setter, more), items, pairs, complete


def bare(kind: Any, core: Any, *raw: Any) -> Any:
    """An instance, made without running its class's code."""
    return core.__new__(kind, *raw)


def _reduced_handler(obj: Any) -> _Reduced:
    """A handler of `logging`, with its own lock. One that writes to a file reopens it at its end."""
    table = dict(vars(obj))
    table.pop("lock", None)
    is_open = False
    if isinstance(obj, logging.FileHandler):
        stream = table["stream"]
        is_open = stream is not None and not stream.closed
        table["stream"] = None
        here = f"{Path.cwd()}/"
        table["baseFilename"] = table["baseFilename"].removeprefix(here)
    return bare, (type(obj), object), (table, is_open), None, None, fill_handler


def fill_handler(obj: Any, state: tuple[dict[str, Any], bool]) -> None:
    table, is_open = state
    vars(obj).update(table)
    obj.createLock()
    logging._addHandlerRef(obj)  # type: ignore[attr-defined]
    if obj.name:
        logging._handlers[obj.name] = obj  # type: ignore[attr-defined]
    if isinstance(obj, logging.FileHandler):
        obj.baseFilename = str(Path.cwd() / obj.baseFilename)
        if is_open:
            mode, obj.mode = obj.mode, obj.mode.replace("w", "a").replace("x", "a")
            obj.stream = obj._open()
            obj.mode = mode


def held_by(obj: Any) -> tuple[dict[str, Any] | None, dict[str, Any], None]:
    """An instance's state besides the content of its built-in base, as `fill_bare` takes it."""
    return _table(obj), dict(_slots(obj)), None


def fill_bare(obj: Any, state: tuple[dict[str, Any] | None, dict[str, Any], Any]) -> None:
    table, slots, content = state
    if table and any(map(_sets_table, type(obj).__mro__)):
        obj.__dict__ = table  # others may have the same one
    elif table:
        _attribute_of(obj, "__dict__").update((sys.intern(str(key)), value) for key, value in table.items())
    for key, value in slots.items():
        _slot(type(obj), key).__set__(obj, value)
    match content:
        case dict():
            dict.update(obj, content)
        case list():
            list.extend(obj, content)
        case ("set", members):
            set.update(obj, members)
        case ("bytearray", given):
            bytearray.extend(obj, given)
        case ("deque", given, most):
            deque.__init__(obj, given, most)
        case ("defaultdict", make, given):
            defaultdict.__init__(obj, make)
            dict.update(obj, given)


def complete(obj: Any, state: tuple[type, Any, Any, dict[str, Any]]) -> None:
    """Sets the state from the class's own reduction, as pickle does it, and the attributes that it left out."""
    kind, said, setter, more = state
    if setter is not None:
        setter(obj, said)
    elif hasattr(obj, "__setstate__") and said is not None:
        obj.__setstate__(said)
    elif said is not None:
        table, slots = said if type(said) is tuple and len(said) == 2 else (said, None)
        if table:
            _attribute_of(obj, "__dict__").update(table)
        for key, value in (slots or {}).items():
            setattr(obj, key, value)
    if type(obj) is kind:
        _attribute_of(obj, "__dict__").update((sys.intern(str(key)), value) for key, value in more.items())


def says_how_to_pickle(cls: type, *, alone: bool = False) -> bool:
    """Whether a library defines how it is pickled. Methods that the user has written don't count.

    alone: without its base classes.
    """
    bases = (cls,) if alone else cls.__mro__
    python_made = (each for each in bases if each.__flags__ & _PYTHON_MADE and not is_of_the_user(each))
    return any(_PROTOCOL & vars(each).keys() for each in python_made)


def is_of_the_user(cls: type) -> bool:
    """Whether a class is written in Python, and not in a library."""
    if not cls.__flags__ & _PYTHON_MADE or cls.__module__ == "builtins":
        return False
    if cls.__module__ == "__main__" or cls.__module__ not in _modules:
        return True
    file = getattr(_modules[cls.__module__], "__file__", None)
    return type(file) is str and not is_of_library(file)


def _sets_table(cls: type) -> bool:
    """Whether its code may share one attribute dictionary between instances."""
    methods = (getattr(value, "__code__", None) for value in vars(cls).values())
    return is_of_the_user(cls) and any(
        type(code) is CodeType and "__dict__" in code.co_names and _STORES in code.co_code[::2]
        for code in methods
    )


def _core(kind: type) -> Any:
    """The class that makes its instances: the first base that is not written in Python."""
    return next(
        each
        for each in kind.__mro__
        if "__new__" in vars(each) and type(vars(each)["__new__"]) is BuiltinFunctionType
    )


def _copied(core: Any, obj: Any) -> Any:
    if core in (tuple, frozenset):
        return core(core.__iter__(obj))
    return _PLAIN[core](obj)


def _content(core: Any, obj: Any) -> Any:
    if core is list:
        return list(list.__iter__(obj))
    if core is dict:
        return dict(dict.items(obj))
    if core is set:
        return "set", list(set.__iter__(obj))
    if core is bytearray:
        return "bytearray", bytes(obj)
    if core is deque:
        return "deque", list(deque.__iter__(obj)), obj.maxlen
    return "defaultdict", obj.default_factory, dict(dict.items(obj))


def _table(obj: Any) -> dict[str, Any] | None:
    try:
        table = _attribute_of(obj, "__dict__")
    except AttributeError:
        return None
    return table if type(table) is dict else None


def _slots(obj: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(obj).__mro__:
        if cls.__flags__ & _PYTHON_MADE:
            for key, slot in vars(cls).items():
                if type(slot) is MemberDescriptorType and slot.__objclass__ is cls:
                    try:
                        yield key, slot.__get__(obj)
                    except AttributeError:  # it has no value
                        continue


def _slot(cls: type, key: str) -> Any:
    found = (vars(each).get(key) for each in cls.__mro__)
    return next(each for each in found if type(each) is MemberDescriptorType)


def _spoken_of(cls: type) -> set[str]:
    """Names of attributes in the code of a class's methods."""
    known = _SPOKEN.get(cls)
    if known is None:
        known = _SPOKEN[cls] = set[str]()
        for each in cls.__mro__:
            known |= vars(each).keys() | getattr(each, "__annotations__", {}).keys()
            for value in vars(each).values():
                code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
                code = getattr(getattr(value, "fget", None), "__code__", None) if code is None else code
                code = getattr(getattr(value, "__func__", None), "__code__", None) if code is None else code
                if type(code) is CodeType:
                    known |= set(_names_in(code))
    return known


_SPOKEN: Final = dict[type, set[str]]()


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if type(part) is CodeType:
            yield from _names_in(part)
        elif type(part) is str:
            yield part
        elif type(part) is tuple:
            yield from (each for each in part if type(each) is str)


_ORIGIN = ("__cause__", "__context__", "__suppress_context__")
"""In this order: setting a cause suppresses the context."""


def reduced_exception(value: BaseException) -> tuple[Any, ...] | None:
    """How to pickle it, as `reducer_override` returns it; None if its own way is complete."""
    more = {key: told for key in _ORIGIN if (told := getattr(value, key))}
    more |= {key: told for key in _fields(type(value)) if (told := getattr(value, key)) is not None}
    cls, base = type(value), _built_in(type(value))
    if cls is base or says_how_to_pickle(cls):
        reduced: Any = value.__reduce_ex__(5)
        if not more or type(reduced) is not tuple or len(reduced) > 3:
            return None
        make, arguments, *state = reduced
        return make, arguments, (more, *state), None, None, filled
    _, arguments, *state = base.__reduce__(value)
    return made, (cls, base, *arguments), (more, *state), None, None, filled


def made(cls: Any, base: Any, *arguments: object) -> BaseException:
    """Makes it as the built-in class does with these arguments."""
    value: BaseException = base.__new__(cls, *arguments)
    base.__init__(value, *arguments)
    return value


def filled(value: BaseException, told: tuple[Any, ...]) -> None:
    more, *state = told
    for one in state:
        value.__setstate__(one)
    for key, part in more.items():
        setattr(value, key, part)


def _built_in(cls: type) -> Any:
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _fields(cls: type) -> Iterator[str]:
    """Attributes of built-in exceptions besides their arguments, such as the name in an attribute error. A group has
    none."""
    for base in cls.__mro__:
        if base.__module__ == "builtins" and base is not BaseExceptionGroup:
            own = vars(base).items()
            yield from (
                key for key, field in own if type(field) is MemberDescriptorType and not key.startswith("__")
            )


_NONE_THERE: Final = frozenset(
    ("builtins", "types", "collections", "functools", "re", "datetime", "pathlib", "cenote_worker",
     "cenote_security", "cenote_proto", "pandas", "enum", "typing", "ast", "weakref", "_io", "io", "logging",
     "__main__")
)  # fmt: skip
"""Modules whose objects are plain values, or are handled elsewhere."""

_KNOWN: Final = frozenset(("matplotlib", "numpy", "decimal", "random", "torch", "threading"))
"""Libraries whose own objects are transferred as settings, which are hidden state, or are bound to their process."""


def is_known(kind: type) -> bool:
    """Whether the content of such a library object is transferred elsewhere."""
    return kind.__module__.partition(".")[0] in _KNOWN


def own_objects(kind: type) -> dict[int, str]:
    """Instances of a class in the module that defines it, or in a package around that: their places, by id."""
    home = kind.__module__
    if (
        home in _NONE_THERE
        or home not in _modules
        or is_of_the_user(kind)
        or issubclass(kind, type | ModuleType)
    ):
        return {}
    if _is_number(kind):
        return {}
    found = dict[int, str]()
    while home:
        module = _modules.get(home)
        if type(module) is ModuleType:
            found = {
                id(value): f"{home}:{path}" for path, value in _in(module) if type(value) is kind
            } | found
        home = home.rpartition(".")[0]
    return found


def own_object(told: str, kind: Any = None) -> object:
    """The object at a place from `own_objects`. kind: its class, if a library creates it lazily: it is then created.
    Raises KeyError, and ImportError."""
    home, _, path = told.partition(":")
    *around, key = path.split(".")
    holder: Any = importlib.import_module(home)
    for each in around:
        holder = vars(holder)[each]
    if kind is None:
        found: object = vars(holder)[key]
        return found
    if type(vars(holder).get(key)) is not kind:
        vars(holder)[key] = object.__new__(kind)
    return vars(holder)[key]


def fill_own(obj: Any, table: dict[str, object]) -> None:
    """Sets the content that the library's object had in the other process."""
    vars(obj).update(table)


def _in(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Its objects, and the attributes of its instances."""
    for key, value in list(vars(module).items()):
        yield key, value
        if table := _attributes(value):
            yield from ((f"{key}.{inner}", held) for inner, held in list(table.items()) if type(inner) is str)


def _attributes(value: Any) -> dict[Any, object] | None:
    if isinstance(value, type | ModuleType) or callable(value):
        return None
    try:
        table = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return table if type(table) is dict else None


def _is_number(kind: type) -> bool:
    numpy: Any = _modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.generic | numpy.ndarray | numpy.dtype)
