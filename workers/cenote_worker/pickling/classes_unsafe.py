"""Classes, type aliases and type parameters by value, on both sides of the wall.

cloudpickle makes a class by calling its metaclass, and leaves out its slots and the own attributes of an enum's
members. Here no user code runs while a class is made: no metaclass, `__init_subclass__` or `__new__` of an enum. Each
of these has already done its work, and the result is in the attributes, which come with the class.
pickle stores aliases and parameters as names, to be looked up where they were defined; in another process of the same

program that name may be missing, or belong to another type. Lazy values stay lazy: an alias comes with the function
that computes its value, as long as the value was not requested. In the body of a class, that function finds names in
the class's own table, which becomes the table of the class that is made there.
"""

from __future__ import annotations

import enum
import functools
import gc
import operator
import re
import sys
import types
import typing
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

import cloudpickle

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_cloudpickle: Final = cloudpickle.cloudpickle
_MAKERS: Final = (_cloudpickle._make_skeleton_class, _cloudpickle._make_skeleton_enum)
_NUMBER: Final = -2
"""Index of the argument that is cloudpickle's number of a class."""

_DRAWN: Final = re.compile(r"[0-9a-f]{32}").fullmatch
"""Whether cloudpickle has drawn such a number at random. Others identify the class, such as those of records."""

_OF_INSTANCES: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_A_MEMBER: Final = frozenset(("__objclass__",))
"""Attributes that an enum sets on each member itself, with other values in a new one."""

_OF_AN_ENUM: Final = frozenset(
    ("_generate_next_value_", "_member_names_", "_member_map_", "_member_type_", "_value2member_map_")
)
"""Attributes that an enum computes from its members."""

_FIRST_OF_AN_ENUM: Final = frozenset(("_new_member_", "_use_args_"))
_OF_NEW_MEMBERS: Final = frozenset(("_new_member_", "__new_member__"))
_READ_BY_ENUM: Final = frozenset(("_order_", "_ignore_"))

_RAW: Final[Mapping[type, Any]] = {
    int: int.__int__,
    str: str.__str__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
    tuple: tuple,
}
"""How to get the plain value of an enum's member that is also of one of these types."""

_modules = sys.modules


def reduced_class(cls: Any, reduced: Any, *, numbered: bool) -> Any:
    """How to pickle a class, given how cloudpickle reduces it; what is not pickled by value is left as it is.

    numbered: two pickles give the same class, by the number that cloudpickle has drawn for it. Without it, equal
    states have equal bytes. A number that was not drawn comes along in any case.
    """
    if not isinstance(reduced, tuple) or reduced[0] not in _MAKERS:
        return reduced
    if type(cls).__module__ == "_ctypes" and cls is getattr(cls, "_type_", cls) * getattr(cls, "_length_", 1):
        return operator.mul, (cls._type_, cls._length_)
    _, arguments, (attributes, _), *_ = reduced
    number = arguments[_NUMBER]
    if not numbered and _DRAWN(number):
        number = None
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    table = vars(cls)
    attributes |= {
        key: value for key, value in table.items() if key not in attributes and _is_inherited(key, cls)
    }
    if isinstance(cls, enum.EnumMeta):
        return _reduced_enum(cls, body, number, attributes)
    bases = arguments[2]
    if _maker(type(cls)):  # with the original bases, `NamedTuple` would make another class
        bases = cls.__bases__
        body |= {key: table[key] for key in ("__orig_bases__",) if key in table}
    if isinstance(table.get("__dict__"), property):
        body["__dict__"] = table["__dict__"]
    if "__slots__" in table:
        body["__slots__"] = _slots(cls)
    made = type(cls), cls.__name__, bases, body, number
    return make_class, made, (_in_order(attributes, cls), {}), None, None, fill_class


def make_class(
    metaclass: type, name: str, bases: tuple[Any, ...], body: dict[str, Any], number: str | None
) -> type:
    """A class without its attributes."""
    make = _maker(metaclass)
    with _quiet(bases):
        if make is not None:
            made = make(metaclass, name, bases, dict(body))
        else:
            made = types.new_class(name, bases, {"metaclass": metaclass}, lambda table: table.update(body))
    return _numbered(made, number)


def fill_class(cls: Any, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    """Sets its attributes, in order, and the own attributes of an enum's members, by name."""
    attributes, members = state
    kind: Any = _library_type(type(cls))
    if isinstance(cls, enum.EnumMeta):
        for key in _OF_NEW_MEMBERS & vars(cls).keys() - attributes.keys():
            type.__delattr__(cls, key)
    else:
        # A library's base class may have set some at creation; they are set again, in order with the others.
        for key in attributes.keys() & vars(cls).keys():
            if key[:2] != "__":
                kind.__delattr__(cls, key)
    for key, value in attributes.items():
        if key != "_abc_impl":
            kind.__setattr__(cls, key, value)
    if "__firstlineno__" in attributes:  # setting other attributes has removed it
        kind.__setattr__(cls, "__firstlineno__", attributes["__firstlineno__"])
    for registered in attributes.get("_abc_impl", ()):
        ABCMeta.register(cls, registered)
    for name, own in members.items():
        vars(cls._member_map_[name]).update(own)


def _reduced_enum(cls: Any, body: dict[str, Any], number: str | None, attributes: dict[str, Any]) -> Any:
    named: dict[str, Any] = dict(cls.__members__)
    raw = next((_RAW[base] for base in cls.__mro__ if base in _RAW), None)
    members = {
        name: (member._value_, () if raw is None else (raw(member),)) for name, member in named.items()
    }
    own = {
        name: {key: value for key, value in vars(member).items() if key not in _OF_A_MEMBER}
        for name, member in named.items()
    }
    boundary = getattr(cls, "_boundary_", None)
    attributes = {
        key: value for key, value in attributes.items() if key not in named and key not in _OF_AN_ENUM
    }
    before = tuple(takewhile(lambda key: key not in _FIRST_OF_AN_ENUM, vars(cls)))
    made = type(cls), cls.__name__, cls.__bases__, body, before, members, boundary, number
    return make_enum, made, (_in_order(attributes, cls), own), None, None, fill_class


def make_enum(
    metaclass: type,
    name: str,
    bases: tuple[type, ...],
    body: dict[str, Any],
    before: tuple[str, ...],
    members: dict[str, tuple[Any, tuple[Any, ...]]],
    boundary: Any,
    number: str | None,
) -> type:
    """An enum whose members only have their names and values.

    before: names of attributes that come before those that every enum has. members: by name, the value and the
    arguments of the mixed-in type, if there is one. Names with the same value are one member.
    """
    kind: Any = _library_type(metaclass)
    table = kind.__prepare__(name, bases)
    for key, value in body.items():
        table[key] = value
    given = list(members.values())
    of = next((base for each in bases for base in each.__mro__ if base in _RAW), object)

    def new(cls: Any, place: int) -> Any:
        value, raw = given[place]
        member: Any = of.__new__(cls, *raw)
        member._value_ = value
        return member

    def begin(_member: Any, _place: int) -> None:
        pass

    standing_in: dict[str, Any] = {"__new__": new, "__init__": begin}
    for key in before:
        if key not in table and key not in _READ_BY_ENUM:
            table[key] = standing_in.get(key, begin)
    for key, value in standing_in.items():
        table[key] = value
    for place, key in enumerate(members):
        table[key] = place
    with _quiet(bases):
        made = kind.__new__(metaclass, name, bases, table, boundary=boundary)
    for key in standing_in.keys() - set(before):
        type.__delattr__(made, key)
    return _numbered(made, number)


def _numbered(cls: type, number: str | None) -> type:
    found: type = _cloudpickle._lookup_class_or_track(number, cls)
    return found


def _maker(metaclass: type) -> Any:
    """The function that makes a class of this metaclass without running code of the user, or of a library, that might
    change its bases; None for a metaclass whose classes are more than their attributes."""
    known = _library_type(metaclass)
    if known in (type, ABCMeta):
        return known.__new__
    return type.__new__ if known.__module__ == "typing" and known.__name__ == "_TypedDictMeta" else None


def _library_type(metaclass: type) -> type:
    """The first of itself and its bases that is pickled by reference."""
    return next(each for each in metaclass.__mro__ if not goes_by_value(each))


def goes_by_value(cls: type) -> bool:
    home = cls.__module__
    if home == "__main__" or home in cloudpickle.list_registry_pickle_by_value():
        return True
    found: Any = _modules.get(home)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is not cls


@contextmanager
def _quiet(bases: tuple[Any, ...]) -> Iterator[None]:
    """Keeps the user's base classes from being notified of a class again: they were when it was first made."""
    heard = {base for each in bases for base in getattr(each, "__mro__", ())}
    told = [
        (base, vars(base)["__init_subclass__"])
        for base in heard
        if "__init_subclass__" in vars(base) and goes_by_value(base)
    ]
    for base, _ in told:
        type.__setattr__(base, "__init_subclass__", classmethod(_hears_nothing))
    try:
        yield
    finally:
        for base, hears in told:
            type.__setattr__(base, "__init_subclass__", hears)


def _hears_nothing(_cls: type, /, **_arguments: object) -> None:
    pass


def _slots(cls: type) -> tuple[str, ...]:
    """The slots of its instances; `__slots__` itself may be an exhausted iterator, or set afterwards."""
    table = vars(cls)
    found = [
        key
        for key, value in table.items()
        if type(value) is types.MemberDescriptorType and _is_of(value, cls)
    ]
    more = [key for key in ("__dict__", "__weakref__") if type(table.get(key)) is types.GetSetDescriptorType]
    return *found, *more


def _is_of(descriptor: Any, cls: type) -> bool:
    return descriptor.__objclass__ is cls


def _is_inherited(key: str, cls: type) -> bool:
    """Whether a base class has the same object, which cloudpickle takes for an inherited one."""
    return any(vars(base).get(key, cls) is vars(cls)[key] for base in cls.__bases__)


def _in_order(attributes: Mapping[str, object], cls: type) -> dict[str, object]:
    """Attributes in the order of the class, without `copyreg`'s own ones and the descriptors of slots."""
    table = vars(cls)
    order = {key: place for place, key in enumerate(table)}
    own = [
        item
        for item in attributes.items()
        if item[0] != "__slotnames__"
        and not (isinstance(table.get(item[0]), _OF_INSTANCES) and _is_of(table[item[0]], cls))
    ]
    return dict(sorted(own, key=lambda item: order.get(item[0], len(order))))


_TEMPLATE: Final = """
def make(worked_out):
    type _Alias = worked_out()
    return _Alias
"""
_NAME: Final = "_Alias"
_ALIAS: Final[Any] = getattr(typing, "TypeAliasType", None)
_PARAMETERS: Final = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
LATE_TYPES: Final[tuple[Any, ...]] = (*_PARAMETERS, *((_ALIAS,) if _ALIAS is not None else ()))
_OF_VARIABLES: Final = ("covariant", "contravariant", "infer_variance")
_SLOTS_OF_INSTANCES: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""Descriptors in a class's own table, such as `__dict__`, that are bound to that class."""


def reduced_late_type(value: Any) -> tuple[Any, ...] | None:
    """How to pickle it, as `reducer_override` gives it; None for any other object, and for one that a module has,
    which is pickled by reference. Raises what computing the bound of a type parameter raises."""
    kind = type(value)
    if kind is types.CellType:
        cls = class_of_table(value)
        return None if cls is None else (over_table, (cls,))
    if kind not in LATE_TYPES or _is_imported(value):
        return None
    if kind is _ALIAS:
        held = types.CellType()
        made = value.__name__, value.__type_params__, value.__module__, held
        return remade_alias, made, (held, _content(value)), None, None, fill
    return remade_parameter, (kind, value.__name__, value.__module__, _settings(value))


def class_of_table(cell: types.CellType) -> type | None:
    """The class whose own table is in a cell; None for any other."""
    try:
        table = cell.cell_contents
    except ValueError:
        return None
    if type(table) is not dict or "__module__" not in table:
        return None
    of_classes = (each.__objclass__ for each in table.values() if type(each) in _SLOTS_OF_INSTANCES)
    return next((cls for cls in of_classes if _table(cls) is table), None)


def over_table(cls: type) -> types.CellType:
    """A cell with the class's own table in it."""
    return types.CellType(_table(cls))


def _table(cls: type) -> object:
    """The class's own table: Python only shows it through a proxy."""
    return gc.get_referents(vars(cls))[0]


def remade_alias(name: str, parameters: tuple[object, ...], module: str, held: types.CellType) -> object:
    """An alias whose value will be in `held`."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(_TEMPLATE, namespace)
    code: types.CodeType = namespace["make"].__code__
    constants = [
        name if constant == _NAME else parameters or None if constant is None else constant
        for constant in code.co_consts
    ]
    make = types.FunctionType(code.replace(co_consts=tuple(constants)), namespace)
    return make(functools.partial(_worked_out, held))


def fill(_alias: object, state: tuple[types.CellType, tuple[Any, object]]) -> None:
    held, content = state
    held.cell_contents = content


def remade_parameter(kind: type, name: str, module: str, settings: dict[str, Any]) -> object:
    made = kind(name, *settings.pop("constraints", ()), **settings)
    made.__module__ = module
    return made


def _worked_out(held: types.CellType) -> object:
    late, value = held.cell_contents
    return value if late is None else late()


def _content(alias: Any) -> tuple[Any, object]:
    """The function that computes its value; once the value was requested None, and the value.

    An alias refers to its parameters if it has any, to this function, and then to its value. One that was made by a
    call has no function; it refers to the value, and to the name of its module.
    """
    first, *others = [each for each in gc.get_referents(alias) if each is not alias.__type_params__]
    if others:
        return None, alias.__value__
    inner = (first.__closure__ or (None,))[0]
    by = inner.cell_contents if inner is not None and first.__code__.co_name == _NAME else None
    if type(by) is functools.partial and by.func is _worked_out:
        content: tuple[Any, object] = by.args[0].cell_contents
        return content
    return first, None


def _settings(parameter: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if type(parameter) is not typing.TypeVarTuple:
        found = {
            key: setting for key in _OF_VARIABLES if (setting := getattr(parameter, f"__{key}__", False))
        }
        if parameter.__bound__ is not None:
            found["bound"] = parameter.__bound__
    if constraints := getattr(parameter, "__constraints__", ()):
        found["constraints"] = constraints
    if sys.version_info >= (3, 13) and parameter.has_default():
        found["default"] = parameter.__default__
    return found


def _is_imported(value: Any) -> bool:
    """Whether it is a name in a module that is pickled by reference."""
    home = value.__module__
    if home == "__main__" or home in cloudpickle.list_registry_pickle_by_value():
        return False
    return getattr(_modules.get(home), value.__name__, None) is value
