"""What a reading knows of a value: its dotted name, its constant, its parts, its alternatives, or nothing.

A dotted name is a plain `str` (`os.path`, `builtins.eval`; `pandas.read_csv()` is what that call returned) and
nothing known is `None`: both are made for almost every expression, so neither is worth an object. The rest is
never changed once made, and not frozen: freezing makes their making, most of the cost of a reading, thrice as slow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cenote_security.rules.reading.scope import Scope

HEAVIEST = 4096
"""Values in a container, those in containers within it counted each time: `x = [x, x]` doubles with every line."""

MOST_ALTERNATIVES = 12
"""Beyond this many possible values a name counts as unknown too; merging stays cheap."""


@dataclass(slots=True)
class Const:
    """A value that the source spells out."""

    value: object


@dataclass(slots=True)
class Items:
    """A list, tuple, set or other sequence, element by element. Made by `items`, which keeps the weight low."""

    values: tuple[Value, ...]
    weight: int


@dataclass(slots=True)
class Table:
    """A dict display with constant keys. Made by `table`."""

    entries: Mapping[object, Value]
    weight: int


@dataclass(slots=True)
class Either:
    """One of several values; `None` among them says that others are possible."""

    options: tuple[Value, ...]


@dataclass(slots=True)
class Bound:
    """A method of a value that is known itself, such as `"".join`."""

    owner: Const | Items | Table
    name: str


@dataclass(slots=True)
class Getter:
    """What `operator.attrgetter`, `methodcaller` or, with `items`, `itemgetter` made: reads members."""

    names: tuple[str, ...]
    items: bool = False


@dataclass(slots=True)
class Partial:
    """What `functools.partial` made. named, more: as in `Arguments`."""

    function: Value
    arguments: tuple[Value, ...]
    named: Mapping[str, Value] | None = None
    more: bool = False


@dataclass(slots=True, eq=False)
class Closure:
    """A function or lambda of this cell; its body is read last, when all that it can see is bound.

    parameters: what calls have passed so far, by parameter name. returns: what the body was seen to return.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    before: dict[str, Value]
    parameters: dict[str, Value] = field(default_factory=dict)
    returns: Value = None
    readings: int = 0


Value: TypeAlias = "str | Const | Items | Table | Either | Bound | Getter | Partial | Closure | None"


def weight(value: Value) -> int:
    """How many values a walk through this one meets."""
    if type(value) is Items or type(value) is Table:
        return value.weight
    if type(value) is Either:
        return sum(map(weight, value.options))
    if type(value) is Bound:
        return weight(value.owner)
    return sum(map(weight, value.arguments), 1) if type(value) is Partial else 1


def items(values: Iterable[Value]) -> Items | None:
    """The sequence of the values; None, that is unknown, when it is too large to follow."""
    parts = tuple(values)
    total = 1 + sum(map(weight, parts))
    return Items(parts, total) if total <= HEAVIEST else None


def table(entries: Mapping[object, Value]) -> Table | None:
    """The mapping; None, that is unknown, when it is too large to follow."""
    total = 1 + sum(map(weight, entries.values()))
    return Table(entries, total) if total <= HEAVIEST else None


def options(value: Value) -> tuple[Value, ...]:
    """All that the value may be."""
    return value.options if type(value) is Either else (value,)


def merge(first: Value, second: Value) -> Value:
    """A value that may be either."""
    if first is second or (type(first) is type(second) and first == second):
        return first
    found: list[Value] = []
    for option in (*options(first), *options(second)):
        if option not in found:
            found.append(option)
    if len(found) > MOST_ALTERNATIVES:
        found = [*found[: MOST_ALTERNATIVES - 1], None]
    return Either(tuple(found))


def merge_all(values: tuple[Value, ...]) -> Value:
    """A value that may be any of them; unknown when there are none."""
    if not values:
        return None
    merged = values[0]
    for value in values[1:]:
        merged = merge(merged, value)
    return merged


def strings(value: Value) -> Iterator[str]:
    """The constant strings that the value may be."""
    for option in options(value):
        if type(option) is Const and isinstance(option.value, str):
            yield option.value


def paths(value: Value) -> Iterator[str]:
    """The dotted names that the value may have."""
    for option in options(value):
        if type(option) is str:
            yield option
