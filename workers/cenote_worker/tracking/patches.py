"""Attributes that a step has set on modules and classes of libraries: state that every later step may meet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.classes import Classes, attributes, is_class, is_module, module_of, qualname
from cenote_worker.tracking.facts import Facts

__builtins__ = BUILTINS

_SETTING: Final = frozenset(
    ("setattr", "delattr", "__dict__", "__setattr__", "update", "register", "reload", "patch")
)
_modules = sys.modules
_MISSING: Final = object()

Before = dict[str, tuple[object, dict[str, object]]]
"""Library objects that a step may set attributes of, by their dotted name, with the attributes that they had."""


class Patches:
    """What was set, by the dotted name of the module or class that it was set on."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._classes = Classes()
        self.found: dict[str, tuple[object, set[str]]] = {}

    def before(self, facts: Facts, own_modules: Mapping[str, ModuleType]) -> Before:
        """Looks at what code that sets attributes can get at by its names."""
        if not facts.sets and not (facts.loads | facts.attributes) & _SETTING:
            return {}
        found = Before()
        for chain in facts.chains | facts.imports:
            target = self._resolve(chain.removesuffix("()")) if chain[-1:] != "=" else None
            dotted = self._library_name(target, own_modules)
            if dotted:
                found[dotted] = target, dict(_table(target))
        return found

    def after(self, before: Before, facts: Facts) -> None:
        """Notes what is another object now, and what the code has certainly set, though it be to the same value.

        Modules do not count: libraries import parts of themselves late.
        """
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

    def values(self, dotted: str) -> dict[str, object]:
        """The attributes that were set, as they are now."""
        target, keys = self.found[dotted]
        table = _table(target)
        return {key: table[key] for key in sorted(keys) if key in table}

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
