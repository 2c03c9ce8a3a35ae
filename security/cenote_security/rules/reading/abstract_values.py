"""What a reading knows: of values, of names in Python's scopes, and from one cell to the next.

A value is its dotted name, its constant, its parts, its alternatives, or nothing. A dotted name is a plain `str`
(`os.path`, `builtins.eval`; `pandas.read_csv()` is what that call returned) and nothing known is `None`: both are
made for almost every expression, so neither is worth an object. The rest is never changed once made, and not frozen:
freezing makes their making, most of the cost of a reading, thrice as slow.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

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
    scope: NameScope
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


ScopeKind = Literal["module", "function", "class", "comprehension"]

SITE_BUILTINS = frozenset(
    {"exit", "quit", "copyright", "credits", "license", "help", "get_ipython", "display"}
)
"""What `site` and a notebook add to the builtins."""

BUILTINS: Final[Mapping[str, str]] = {
    name: f"builtins.{name}" for name in sorted({*dir(builtins), *SITE_BUILTINS}) if not name.startswith("__")
} | {"__import__": "builtins.__import__", "__builtins__": "builtins"}

BUILTIN_CLASSES: Final = frozenset(
    path for name, path in BUILTINS.items() if isinstance(getattr(builtins, name, None), type)
)
"""These are named all the time without being called: `isinstance(x, type)`, `astype(object)`."""


class Lookup(Enum):
    """The other outcome of looking a name up."""

    UNBOUND = "unbound"


def or_former(name: str, names: Mapping[str, Value], value: Value) -> Value:
    """The value, or what the name means without it: a name that meant nothing cannot be read."""
    if name in names:
        return merge(names[name], value)
    return merge(BUILTINS[name], value) if name in BUILTINS else value


class NameScope:
    """The names of a module, function, class body or comprehension while it is read.

    names: what each name means at this point. history: all that each name ever meant here; a function body may
        run at any later time. before: for a function, what its parent's names meant when it was defined; None
        for scopes that run at once. outward: names declared `global` or `nonlocal`, with the scope they mean.
    """

    __slots__ = ("before", "history", "kind", "names", "outward", "parent")

    def __init__(
        self, kind: ScopeKind, parent: NameScope | None = None, before: Mapping[str, Value] | None = None
    ) -> None:
        self.kind = kind
        self.parent = parent
        self.before = before
        self.names: dict[str, Value] = {}
        self.history: dict[str, Value] = {}
        self.outward: dict[str, NameScope] = {}

    def lookup(self, name: str) -> Value | Lookup:
        """What the name may mean here, UNBOUND when no scope has it."""
        if name in self.names and name not in self.outward:
            return self.names[name]
        scope = self
        while scope.parent is not None:
            before, scope = scope.before, scope.parent
            found = scope._seen_from_inside(name, before)
            if found is not Lookup.UNBOUND:
                return found
        return Lookup.UNBOUND

    def _seen_from_inside(self, name: str, before: Mapping[str, Value] | None) -> Value | Lookup:
        if before is None:
            return self.names.get(name, Lookup.UNBOUND)
        if name not in self.history:
            return before.get(name, Lookup.UNBOUND)
        # The body may run between its definition and a later binding: then the name still means what it did.
        return or_former(name, before, self.history[name])

    def set(self, name: str, value: Value, *, certain: bool = True) -> None:
        """Bind the name. When it is not certain that this runs, its former meaning stays possible."""
        if name in self.outward:
            self.outward[name].set(name, value, certain=False)
            return
        if not certain:
            value = or_former(name, self.names, value)
        self.names[name] = value
        self.history[name] = merge(self.history[name], value) if name in self.history else value

    def delete(self, name: str) -> None:
        """Unbind the name: what an outer scope or the builtins call so shows through again."""
        if name in self.outward:
            scope = self.outward[name]
            before = dict(scope.names)
            scope.delete(name)
            scope.join(before)
        else:
            self.names.pop(name, None)

    def join(self, before: Mapping[str, Value]) -> None:
        """The code since `before` may not have run: what names meant then is possible again."""
        for name, value in self.names.items():
            if name not in before or before[name] is not value:
                self.names[name] = or_former(name, before, value)
        for name in before.keys() - self.names.keys():
            self.names[name] = merge(before[name], BUILTINS.get(name))

    def home(self) -> NameScope:
        """The nearest scope that is not a comprehension: where a walrus binds."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        return scope

    def enclosing(self) -> NameScope:
        """The scope that functions defined here see: class bodies are skipped."""
        scope = self
        while scope.kind == "class" and scope.parent is not None:
            scope = scope.parent
        return scope

    def module(self) -> NameScope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


SOME_FUNCTION = Partial(None, ())
"""A function of which no more is known."""

LONGEST_KEPT = 1_000
"""Characters of a constant that is remembered from one cell to the next."""


@dataclass(slots=True)
class Memory:
    """Names and fields of a namespace, as far as its cells were read.

    names: what module-level names mean. fields: what was put into attributes and items of that name, anywhere.
    modules: modules that were imported. stars: modules that were imported with a star.
    """

    names: dict[str, Value] = field(default_factory=dict)
    fields: dict[str, Value] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    def copy(self) -> Memory:
        return Memory(dict(self.names), dict(self.fields), set(self.modules), list(self.stars))

    def doubtful(self, after: Memory) -> Memory:
        """`after`, for a cell that may have stopped half-way: what names meant before stays possible."""
        doubted = after.copy()
        for name, value in after.names.items():
            doubted.names[name] = or_former(name, self.names, value)
        for name in self.names.keys() - after.names.keys():
            doubted.names[name] = merge(self.names[name], BUILTINS.get(name))
        return doubted

    def define(self, names: Iterable[str]) -> None:
        """Names that something else than a cell put into the namespace."""
        for name in names:
            self.names[name] = name


def kept(value: Value) -> Value:
    """The value without what is too big to remember, or bound to a syntax tree."""
    if type(value) is Closure:
        return SOME_FUNCTION
    if type(value) is Either:
        return Either(tuple(kept(option) for option in value.options))
    if type(value) is Const and isinstance(value.value, str | bytes) and len(value.value) > LONGEST_KEPT:
        return None
    if type(value) is Items:
        return items(map(kept, value.values))
    if type(value) is Table:
        return table({key: kept(entry) for key, entry in value.entries.items()})
    if type(value) is Partial:
        return SOME_FUNCTION
    return None if type(value) is Bound else value
