"""The index of a state: a version of each name, hidden state, own module and attribute set in a library.

Taken in the same way of a state and of its copy, in any processes; see `execution/state_index.py`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Final

from cenote_worker.execution.state_index import Indexed
from cenote_worker.execution.trace import Location, Version, hidden, key_of, kind_of, module, name
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.descriptions.classes import attributes, is_class, is_module
from cenote_worker.jail.tracking.descriptions.known_digests import SampledMemory
from cenote_worker.jail.tracking.fingerprint import UNSEEN, fingerprint_of
from cenote_worker.jail.tracking.object_index import ObjectIndex
from cenote_worker.jail.tracking.process_state import ambient_state
from cenote_worker.jail.tracking.process_state.modules import OwnModules
from cenote_worker.process.pristine import BUILTINS, builtins_of_cells

__builtins__ = BUILTINS

SECONDS: Final = 0.3
"""Of an idle machine, for one whole index: 150,000 small objects."""

_PRIVATE: Final = "some of it can be told only in the process that it was made in"
_INSIDE: Final = "something in it may have been set that no attribute of its shows"
_UNCOMPARED: Final = frozenset(("locks", ambient_state.EVENT_LOOP))
"""States that are only open files and tasks of the process; the names that hold these are compared."""

DRAWN: Final = frozenset(ambient_state.DRAWN)
_modules = sys.modules


class StateIndexer:
    """The index of one namespace."""

    def __init__(self, namespace: dict[str, object], own_modules: OwnModules) -> None:
        own_modules.refresh()
        self._album = ObjectIndex(namespace, own_modules, SampledMemory())
        self._album.handlers.look_around()
        self._budget = InspectionBudget(SECONDS)

    def names(self, names: Iterable[str]) -> dict[Location, Indexed]:
        """The existing names, in the given order."""
        locations = list(map(name, names))
        self._album.look_at(locations, self._budget)
        return {each: found for each in locations if (found := self._picture(each)) is not None}

    def own_modules(self) -> dict[Location, Indexed]:
        locations = list(map(module, self._album.own_modules.found))
        self._album.look_at(locations, self._budget)
        return {each: found for each in locations if (found := self._picture(each)) is not None}

    def _picture(self, location: Location) -> Indexed | None:
        picture = self._album.picture(location, self._budget)
        if picture is None:
            return None
        sealed = _PRIVATE if picture.version.startswith(UNSEEN) else ""
        version = self._album.version(location, self._budget)
        return Indexed(location=location, version=version, unseen=picture.opaque or sealed)

    def libraries(self, noted: Mapping[str, tuple[object, Iterable[str], bool]]) -> dict[Location, Indexed]:
        """noted: by dotted name of a module or class: the object, the attributes that were set, whether there may be
        more."""
        return {
            module(dotted): self._library(module(dotted), target, tuple(sorted(keys)), inside=inside)
            for dotted, (target, keys, inside) in noted.items()
        }

    def _library(self, location: Location, target: object, keys: tuple[str, ...], *, inside: bool) -> Indexed:
        with builtins_of_cells():
            table = _table(target)
            values = {key: table[key] for key in keys if key in table}
        album = self._album
        picture = fingerprint_of(
            values, values, album.namespace, album.own_modules.found, album.handlers, album.untouched, self._budget
        )  # fmt: skip
        unseen = picture.opaque or (_INSIDE if inside else "")
        version = Version("") if picture.opaque else picture.version
        return Indexed(location=location, version=version, attributes=keys, unseen=unseen)

    def copied_libraries(self, expected: Iterable[Indexed]) -> dict[Location, Indexed]:
        """The same attributes of the same libraries here."""
        found = dict[Location, Indexed]()
        for each in expected:
            target = _target(key_of(each.location))
            if target is not None:
                found[each.location] = self._library(each.location, target, each.attributes, inside=False)
        return found

    def objects(self, locations: Iterable[Location]) -> frozenset[int]:
        """Ids of objects that these names lead to and whose identity matters."""
        known = [picture for each in locations if (picture := self._album.known(each)) is not None]
        return frozenset(
            each for picture in known if not picture.constant for each in (picture.identity, *picture.holds)
        )


def states() -> dict[Location, Indexed]:
    """Hidden state of the process and of the imported libraries, except that of `drawn`. Call it in the context of
    the cells: some of it is a context variable.
    """
    found = ambient_state.versions(ambient_state.settings())
    return _as_states((state, found[state]) for state in sorted(found.keys() - DRAWN))


def drawn() -> dict[Location, Indexed]:
    """The state of random number generators."""
    found = ambient_state.versions(())
    return _as_states((state, found[state]) for state in sorted(found.keys() & DRAWN))


def _as_states(found: Iterable[tuple[str, Version]]) -> dict[Location, Indexed]:
    return {
        hidden(state): Indexed(
            location=hidden(state), version=version, unseen=_PRIVATE if version.startswith(UNSEEN) else ""
        )
        for state, version in found
        if state not in _UNCOMPARED and version
    }


def index_of_copy(
    namespace: dict[str, object], own_modules: OwnModules, expected: Iterable[Indexed]
) -> dict[Location, Indexed]:
    """The entries of this process for the locations of another index."""
    expected = list(expected)
    indexer = StateIndexer(namespace, own_modules)
    wanted = {each.location: each for each in expected}
    here = [each for each in list(namespace) if type(each) is str and name(each) in wanted]
    found = indexer.names(here)
    others = {**states(), **drawn(), **indexer.own_modules()}
    found |= {each: seen for each, seen in others.items() if each in wanted}
    return found | indexer.copied_libraries(each for each in expected if each.attributes)


def import_all(expected: Iterable[Indexed]) -> None:
    """Imports modules in another index, except those that cannot be imported here."""
    for each in expected:
        if kind_of(each.location) == "module" or "." in key_of(each.location):
            with suppress(Exception):
                _import_longest(key_of(each.location))


def shared_with(indexed: Indexed, version: Version) -> Indexed:
    """The entry, with the sharing from another look at it. version: of that look."""
    alias = version.partition("+")[2]
    return replace(indexed, version=Version(f"{indexed.content}+{alias}" if alias else indexed.content))


def _target(dotted: str) -> object:
    """The module or class of that name; None if it does not exist."""
    first = _import_longest(dotted)
    if first is None:
        return None
    found: object = _modules.get(first)
    for part in dotted.removeprefix(first).split("."):
        if part:
            found = _table(found).get(part)
    return found


def _import_longest(dotted: str) -> str | None:
    """The longest part of a dotted name that is an imported module."""
    while dotted:
        with suppress(ImportError):
            importlib.import_module(dotted)
            return dotted
        dotted = dotted.rpartition(".")[0]
    return None


def _table(value: object) -> Mapping[str, object]:
    if is_module(value):
        table: Mapping[str, object] = ModuleType.__getattribute__(value, "__dict__")
        return table
    if value is not None and is_class(value):
        assert isinstance(value, type)
        return attributes(value)
    return {}
