"""Which names mean what, and where: Python's scopes, as far as a reading can tell."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from cenote_security.rules.reading.value import Value, merge

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


class Scope:
    """The names of a module, function, class body or comprehension while it is read.

    names: what each name means at this point. history: all that each name ever meant here; a function body may
        run at any later time. before: for a function, what its parent's names meant when it was defined; None
        for scopes that run at once. outward: names declared `global` or `nonlocal`, with the scope they mean.
    """

    __slots__ = ("before", "history", "kind", "names", "outward", "parent")

    def __init__(
        self, kind: ScopeKind, parent: Scope | None = None, before: Mapping[str, Value] | None = None
    ) -> None:
        self.kind = kind
        self.parent = parent
        self.before = before
        self.names: dict[str, Value] = {}
        self.history: dict[str, Value] = {}
        self.outward: dict[str, Scope] = {}

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

    def home(self) -> Scope:
        """The nearest scope that is not a comprehension: where a walrus binds."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        return scope

    def enclosing(self) -> Scope:
        """The scope that functions defined here see: class bodies are skipped."""
        scope = self
        while scope.kind == "class" and scope.parent is not None:
            scope = scope.parent
        return scope

    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope
