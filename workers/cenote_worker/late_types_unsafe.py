"""Type aliases and type parameters by value, on both sides of the wall.

pickle stores them as names, to be looked up where they have been defined; in another process of the same program
nothing has that name yet, or has another type under it. What is worked out later stays so: an alias comes with the
function that does it, as long as nobody has asked for its value. In the body of a class, that finds names in the own
table of the class, which goes as the table of the class that is made there.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
import typing
from typing import Any, Final

import cloudpickle

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

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
_OF_INSTANCES: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""What a class has of its own in its table, such as `__dict__`, and which say what class that is."""

_modules = sys.modules


def reduced_late_type(value: Any) -> tuple[Any, ...] | None:
    """How to pickle it, as `reducer_override` gives it; None for any other object, and for what goes by reference, as
    a module has it. Raises what working out the bound of a type parameter raises."""
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
    of_classes = (each.__objclass__ for each in table.values() if type(each) in _OF_INSTANCES)
    return next((cls for cls in of_classes if _table(cls) is table), None)


def over_table(cls: type) -> types.CellType:
    """A cell with the class's own table in it."""
    return types.CellType(_table(cls))


def _table(cls: type) -> object:
    """Python shows it through a proxy alone."""
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
    """The function that works its value out; once somebody has asked for it None, and the value.

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
    """Whether it is a name of a module that goes by reference."""
    home = value.__module__
    if home == "__main__" or home in cloudpickle.list_registry_pickle_by_value():
        return False
    return getattr(_modules.get(home), value.__name__, None) is value
