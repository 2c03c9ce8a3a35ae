"""Every kind of value in the laboratory's programs: how it is walked, compared and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any


class Stream:
    """A value that cannot be inspected or stored: it gives 0, 1, 2, ...; the tracker stamps it."""

    def __init__(self) -> None:
        self.at = 0
        self.stamp = "new"


def is_atom(value: object) -> bool:
    return type(value) in _ATOMS


def parts(value: object) -> list[object]:
    """The parts of a value, in a fixed order. Strings among them stand for themselves."""
    kind = type(value)
    if kind in _ATOMS:
        return []
    if kind in _PARTS:
        return _PARTS[kind](value)
    if isinstance(value, type):
        return attributes(value)
    return [] if isinstance(value, Stream | ModuleType) or callable(value) else [kind, *attributes(value)]


_GIVEN = {
    "__slotnames__",
    "__module__",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__firstlineno__",
    "__static_attributes__",
}

_ATOMS = {type(None), int, bool, float, str, CodeType}

_PARTS: dict[type, Callable[..., list[object]]] = {
    list: list,
    tuple: list,
    dict: lambda value: [part for pair in value.items() for part in pair],
    FunctionType: lambda value: [value.__code__, value.__defaults__, *(value.__closure__ or ())],
    CellType: lambda value: [value.cell_contents] if has_contents(value) else [],
    MethodType: lambda value: [value.__func__, value.__self__],
}


def has_contents(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not Ellipsis
    except ValueError:
        return False


def attributes(value: object) -> list[object]:
    own = {key: part for key, part in vars(value).items() if key not in _GIVEN}
    return [part for pair in own.items() for part in pair]


def is_shared(value: object) -> bool:
    """Whether two names with this object notice each other's changes."""
    kind = type(value)
    if kind in _ATOMS or value is Stream:
        return False
    if kind in _PARTS:
        return kind is not tuple or bool(value)
    if isinstance(value, type):
        return value.__module__ != "builtins"
    return not callable(value)


def reachable(value: object) -> Iterator[object]:
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += parts(one)


def canonical(values: dict[str, object], stream: Callable[[Stream], object]) -> str:
    """Equal for values that programs cannot distinguish, sharing included."""
    numbers: dict[int, int] = {}
    out: list[str] = []
    pending: list[object] = [part for name in sorted(values) for part in (name, values[name])][::-1]
    while pending:
        one = pending.pop()
        if isinstance(one, CodeType):
            out.append(_code(one))
        elif is_atom(one):
            out.append(f"{type(one).__name__}:{one!r}")
        elif id(one) in numbers:
            out.append(f"#{numbers[id(one)]}")
        elif isinstance(one, Stream):
            numbers[id(one)] = len(numbers)
            out.append(f"stream:{stream(one)}")
        else:
            if type(one) is not tuple or one:
                numbers[id(one)] = len(numbers)
            children = parts(one)
            out.append(f"{_kind(one)}/{len(children)}")
            pending += children[::-1]
    return " ".join(out)


def _kind(value: object) -> str:
    if isinstance(value, type | FunctionType | ModuleType) or callable(value):
        return f"{type(value).__name__}={getattr(value, '__name__', '')}"
    return type(value).__name__


@cache
def _code(code: CodeType) -> str:
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"code:{code.co_code.hex()}{code.co_names}{code.co_varnames}{code.co_freevars}{constants}"


def clone(values: dict[str, object], namespace: dict[str, object]) -> dict[str, object]:
    """An independent copy of all of them together. namespace: the globals of copied functions."""
    memo: dict[int, object] = {}
    keep: list[object] = []
    return {name: _clone(value, namespace, memo, keep) for name, value in values.items()}


def _clone(
    value: object, namespace: dict[str, object], memo: dict[int, object], keep: list[object]
) -> object:
    def copy(part: object) -> Any:  # of the type of the part
        return _clone(part, namespace, memo, keep)

    if not is_shared(value):
        return value
    if id(value) in memo:
        return memo[id(value)]
    keep.append(value)
    if isinstance(value, tuple):
        made_tuple = tuple(copy(part) for part in value)
        memo.setdefault(id(value), made_tuple)  # a cycle through it has created it already
    elif isinstance(value, MethodType):
        method = MethodType(copy(value.__func__), copy(value.__self__))
        memo.setdefault(id(value), method)
    elif isinstance(value, list):
        memo[id(value)] = made = []
        made += [copy(part) for part in value]
    elif isinstance(value, dict):
        memo[id(value)] = table = {}
        table.update({copy(key): copy(part) for key, part in value.items()})
    elif isinstance(value, CellType):
        memo[id(value)] = cell = CellType()
        if has_contents(value):
            cell.cell_contents = copy(value.cell_contents)
    elif isinstance(value, Stream):
        memo[id(value)] = stream = Stream()
        stream.at, stream.stamp = value.at, value.stamp
    elif isinstance(value, FunctionType):
        cells = tuple(copy(cell) for cell in value.__closure__ or ())
        if id(value) not in memo:
            made_function = FunctionType(value.__code__, namespace, value.__name__, None, cells)
            memo[id(value)] = made_function
            made_function.__defaults__ = copy(value.__defaults__)
    elif isinstance(value, type):
        memo[id(value)] = kind = type(value.__name__, value.__bases__, {})
        for key, part in vars(value).items():
            if key not in _GIVEN:
                setattr(kind, key, copy(part))
    else:
        made_type = copy(type(value))
        if id(value) not in memo:
            instance: object = object.__new__(made_type)
            memo[id(value)] = instance
            vars(instance).update({key: copy(part) for key, part in vars(value).items()})
    return memo[id(value)]
