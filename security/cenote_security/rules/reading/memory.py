"""What a reading hands on to the reading of the next cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cenote_security.rules.reading.scope import BUILTINS, or_former
from cenote_security.rules.reading.value import (
    Bound,
    Closure,
    Const,
    Either,
    Items,
    Partial,
    Table,
    Value,
    items,
    merge,
    table,
)

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
