"""What steps have set on modules and classes of libraries, and in them: state that every later step may meet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from types import ModuleType
from typing import Final

import xxhash

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import Location, Version, module
from cenote_worker.tracking.classes import Classes, attributes, is_class, is_module, module_of, mro, qualname
from cenote_worker.tracking.facts import Facts
from cenote_worker.tracking.hidden import keeping_handlers
from cenote_worker.tracking.picture import fresh
from cenote_worker.tracking.settings import FEATURES, libraries_set

__builtins__ = BUILTINS

_SETTING: Final = frozenset(
    ("setattr", "delattr", "__dict__", "vars", "__setattr__", "update", "register", "reload", "patch")
)
_modules = sys.modules
_MISSING: Final = object()

Before = dict[str, tuple[object, dict[str, object]]]
"""Library objects that a step may set attributes of, by their dotted name, with the attributes that they had."""


_LOGGING: Final = "logging"
_FUTURE: Final = "__future__"
"""Whose features hold for all cells behind the one that imports them."""


class Patches:
    """What was set, by the dotted name of the module or class that it was set on."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._classes = Classes()
        self.found: dict[str, tuple[object, set[str]]] = {}
        self._unseen: dict[str, str] = {}
        """Of libraries in which something was set that cannot be looked at: stands for all of that."""
        self._features = frozenset[str]()

    @property
    def version(self) -> Version:
        """Of LIBRARIES."""
        return Version(xxhash.xxh3_64_hexdigest(repr(sorted(self.found.keys() - {_LOGGING})).encode()))

    def roots(self, libraries: Set[str]) -> set[Location]:
        """What any step may meet, or one that uses these libraries: only those who log meet where that goes."""
        if _LOGGING in libraries and _LOGGING not in self.found and keeping_handlers():
            self.found[_LOGGING] = _modules[_LOGGING], set()
        return {module(each) for each in self.found if each != _LOGGING or each in libraries}

    def before(self, facts: Facts, libraries: Set[str], own_modules: Mapping[str, ModuleType]) -> Before:
        """Looks at what code that sets attributes can get at by its names, and by what those hold."""
        if not facts.sets and not (facts.loads | facts.attributes) & _SETTING:
            return {}
        found = Before()
        for target in self._targets(facts, libraries):
            dotted = self._library_name(target, own_modules)
            if dotted:
                found[dotted] = target, dict(_table(target))
        return found

    def _targets(self, facts: Facts, libraries: Set[str]) -> Iterator[object]:
        for chain in facts.chains | facts.imports:
            if chain[-1:] != "=":
                yield self._resolve(chain.removesuffix("()"))
        yield from map(_modules.get, libraries)
        if "type" in facts.loads or "__class__" in facts.attributes:
            for variable in facts.loads & self._namespace.keys():
                yield from mro(type(self._namespace[variable]))

    def after(
        self, before: Before, facts: Facts, libraries: frozenset[str], own_modules: Mapping[str, ModuleType]
    ) -> None:
        """Notes what is another object now, and what the code has certainly set, though it be to the same value.

        Modules do not count: libraries import parts of themselves late.
        """
        for library, home in libraries_set(facts, libraries, self._namespace).items():
            if library not in own_modules:
                self._note_unseen(library, home, fresh())
        if _FUTURE in facts.imports:
            self._features |= facts.attributes & FEATURES
            self._note_unseen(_FUTURE, _modules[_FUTURE], " ".join(sorted(self._features)))
        for chain in facts.chains:
            owner, _, key = chain.removesuffix("=").rpartition(".")
            if chain[-1:] == "=" and (found := self._resolve(owner)) is not None:
                for dotted in [dotted for dotted, (known, _) in before.items() if known is found]:
                    self.found.setdefault(dotted, (found, set()))[1].add(key)
        for dotted, (target, was) in before.items():
            now = _table(target)
            for key in was.keys() | now.keys():
                value = now.get(key, _MISSING)
                if value is not was.get(key, _MISSING) and type(value) is not ModuleType and key[:2] != "__":
                    self.found.setdefault(dotted, (target, set()))[1].add(key)

    def _note_unseen(self, library: str, target: object, version: str) -> None:
        self.found.setdefault(library, (target, set()))
        self._unseen[library] = version

    def values(self, dotted: str) -> dict[str, object]:
        """The attributes that were set, as they are now."""
        target, keys = self.found[dotted]
        table = _table(target)
        values = {key: table[key] for key in sorted(keys) if key in table}
        if dotted == _LOGGING:
            return values | {"": keeping_handlers()}
        return values | {"": self._unseen[dotted]} if dotted in self._unseen else values

    def _resolve(self, chain: str) -> object:
        first, *rest = chain.split(".")
        value = self._namespace.get(first, _MISSING)
        if value is _MISSING:
            value = _modules.get(first)
        for part in rest:
            value = _table(value).get(part)
        return value

    def _library_name(self, value: object, own_modules: Mapping[str, ModuleType]) -> str:
        if is_module(value):
            dotted = _table(value).get("__name__")
            known = type(dotted) is str and _modules.get(dotted) is value and dotted != "__main__"
            return str(dotted) if known and dotted not in own_modules else ""
        if value is not None and is_class(value):
            assert isinstance(value, type)
            return (
                f"{module_of(value)}.{qualname(value)}"
                if self._classes.is_library(value, own_modules)
                else ""
            )
        return ""


def _table(value: object) -> Mapping[str, object]:
    if is_module(value):
        table: Mapping[str, object] = ModuleType.__getattribute__(value, "__dict__")
        return table
    if value is not None and is_class(value):
        return attributes(value)  # type: ignore[arg-type]
    return {}
