"""What steps have set on modules and classes of libraries, and in them: state that any later step may use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, Protocol

import xxhash

from cenote_worker.execution.trace import DATABASES, Location, Version, inside, key_of, kind_of, module
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.code.opaque_setters import FEATURES, libraries_set
from cenote_worker.jail.tracking.descriptions.classes import (
    Classes,
    attributes,
    is_class,
    is_module,
    module_of,
    mro,
    public_name,
    qualname,
)
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.jail.tracking.libraries import duckdb_connections
from cenote_worker.jail.tracking.process_state.ambient_state import CALLING_BACK, QUIET, called_back
from cenote_worker.jail.tracking.process_state.library_changes import LibraryChanges
from cenote_worker.jail.tracking.process_state.library_digest import is_standard, keeps_something, library_of
from cenote_worker.jail.tracking.process_state.library_state import (
    Insides,
    different,
    homes,
    insides,
    is_container,
    is_part,
    is_plain,
    items_of,
    parts_of,
)
from cenote_worker.jail.tracking.process_state.modules import end_of_imports, is_of_library
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SETTING: Final = frozenset(
    ("setattr", "delattr", "__dict__", "vars", "__setattr__", "update", "register", "reload", "patch")
)
_BY_NAME: Final = frozenset(("setattr", "delattr", "__dict__", "vars", "__setattr__"))
"""Those that set attributes whose names need not be in the code."""

_modules = sys.modules
_MISSING: Final = object()

_FUTURE: Final = "__future__"
"""Its features hold for all cells after the one that imports them."""

_ELSEWHERE: Final = frozenset(
    (("sys", "path"), ("sys", "modules"), ("warnings", "filters"), ("logging", "root"), ("logging", "_handlers"),
     ("logging", "_handlerList"), ("matplotlib", "rcParams"), ("matplotlib.pyplot", "rcParams"))
)  # fmt: skip
"""State that is tracked as hidden state, or elsewhere."""

_GIVING_NEW: Final = frozenset(("builtins", "copy", "logging", "json"))
"""Libraries whose functions return new objects, or hidden state."""

_OF_ANY_STEP: Final = frozenset(("warnings", "signal", "asyncio"))
"""Libraries that may call the user's functions during any step."""

_SPOKEN_OF: Final = 100_000
"""Items of a library's table that the code names; larger ones are not compared."""

_SET_BY_ATTRIBUTES: Final = frozenset(("pandas", "decimal", "os", "matplotlib", "matplotlib.pyplot"))
"""Attributes set on their objects are hidden state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What a step may set. tables: library objects by their dotted name, with their former attributes.

    containers: by that name and the attribute's, with their former items. modules: those that it calls into. parts:
    objects that the user's names lead to, so that code need not name them, by id. imported: the modules that were
    there, if the code may set something on one.
    """

    tables: dict[str, tuple[object, dict[str, object]]] = field(default_factory=dict)
    containers: dict[tuple[str, str], list[object]] = field(default_factory=dict)
    modules: dict[str, tuple[ModuleType, Insides]] = field(default_factory=dict)
    parts: dict[int, list[object]] = field(default_factory=dict)
    imported: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPart:
    """A container or an instance that is an attribute of a library's module."""

    dotted: str
    home: object
    key: str
    value: object

    @property
    def is_plain(self) -> bool:
        """Whether it is always pickled by its content."""
        return type(self.value) in (dict, list, set)

    @property
    def is_seen(self) -> bool:
        """Whether changes in it are hidden state."""
        return (self.dotted, self.key) in _ELSEWHERE or self.dotted in _SET_BY_ATTRIBUTES

    def items(self) -> list[object]:
        return parts_of(self.value, _SPOKEN_OF)


class MetInLibraries(Protocol):
    """What a step can reach without naming it: modules by name, and classes by id."""

    packages: frozenset[str]
    classes: dict[int, type]
    of_libraries: set[int]


def _with_beneath(libraries: Set[str]) -> Set[str]:
    """Adds what steps that use these libraries may reach in others."""
    if duckdb_connections.is_met(libraries):
        libraries |= {key_of(DATABASES)}
    return libraries if libraries <= QUIET else libraries | {"logging"}


class Monkeypatches:
    """What was set, by the dotted name of the module or class that it was set on."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._classes = Classes()
        self.found: dict[str, tuple[object, set[str]]] = {}
        self._unseen: dict[str, str] = {}
        """Libraries in which something was set that cannot be inspected, with a version for all of that."""
        self._called = set[str]()
        """Libraries that are recorded only because they call the user's functions."""
        self._by_origin = set[str]()
        """Of those, the ones that a comparison has found: the same step gives them the same state."""
        self._features = frozenset[str]()
        self.replaced = set[tuple[str, str]]()
        """Attributes that were replaced by another object, by the same name and the attribute's."""
        self.altered = dict[tuple[str, str], object]()
        """Module attributes whose object has changed in a way that cannot be inspected, by the same key."""
        self.set_on = set[tuple[str, str, str]]()
        """Attributes of such objects that were set: the module, the object's name there, and the attribute's."""
        self.met: dict[int, LibraryPart] = {}
        """By id: objects of libraries that code has named, and that a user's name may lead to."""
        self._imported = end_of_imports(), frozenset(_modules)
        """The modules that were imported when the end of the list was this."""

    @property
    def version(self) -> Version:
        """The version of LIBRARIES."""
        return Version(xxhash.xxh3_64_hexdigest(repr(sorted(self.found.keys() - self._called)).encode()))

    def roots(self, libraries: Set[str]) -> set[Location]:
        """What any step may use, or one that uses these libraries: functions that they call matter only to their
        users."""
        return self._roots_among(_with_beneath(libraries) | _OF_ANY_STEP)

    def further_roots(self, libraries: Set[str]) -> set[Location]:
        """Like `roots`, if nothing has run since its last call: what any step may use is known from there."""
        return self._roots_among(_with_beneath(libraries))

    def _roots_among(self, libraries: Set[str]) -> set[Location]:
        for library in (libraries & CALLING_BACK.keys()) - self.found.keys():
            if called_back(library):
                self.found[library] = _modules[library], set()
                self._called.add(library)
        return {module(each) for each in self.found if each not in self._called or each in libraries}

    def before(self, facts: Facts, met: MetInLibraries, own_modules: Mapping[str, ModuleType]) -> Before:
        """Looks at what code that sets attributes can reach by its names, and at the content of that."""
        containers = {
            place: items_of(held, _SPOKEN_OF) for place, _, held in self._containers(facts, own_modules)
        }
        called = {str(each.__name__): each for each in homes(self._called_by(facts))}
        modules = {
            key: (each, insides(each))
            for key, each in called.items()
            # Into the other ones `LibraryState` looks more deeply.
            if key not in own_modules
            and (is_standard(library_of(key)) or not keeps_something(library_of(key), own_modules.keys()))
        }
        parts = {each: self.met[each].items() for each in met.of_libraries if not self.met[each].is_seen}
        if not facts.sets and not (facts.loads | facts.attributes) & _SETTING:
            return Before(containers=containers, modules=modules, parts=parts)
        tables = dict[str, tuple[object, dict[str, object]]]()
        for target in self._targets(facts, met):
            dotted = self._library_name(target, own_modules)
            if dotted:
                tables[dotted] = target, dict(_table(target))
        if (end := end_of_imports()) != self._imported[0]:
            self._imported = end, frozenset(_modules)
        imported = self._imported[1]
        return Before(tables=tables, containers=containers, modules=modules, parts=parts, imported=imported)

    def _called_by(self, facts: Facts) -> Iterator[object]:
        """Objects that may be a module of a library that the code calls into, or a function or a class of one."""
        for owner in {chain.rstrip("()=").rpartition(".")[0] for chain in facts.chains}:
            yield self._resolve(owner)
        yield from map(self._namespace.get, facts.loads)
        yield from map(_modules.get, facts.imports)

    def _targets(self, facts: Facts, met: MetInLibraries) -> Iterator[object]:
        for chain in facts.chains | facts.imports:
            if chain[-1:] != "=":
                yield self._resolve(chain.removesuffix("()"))
        yield from self._within(facts)
        yield from map(_modules.get, met.packages)
        yield from met.classes.values()
        if "type" in facts.loads or "__class__" in facts.attributes:
            for variable in facts.loads & self._namespace.keys():
                yield from mro(type(self._namespace[variable]))

    def _within(self, facts: Facts) -> Iterator[object]:
        """Classes and modules that the code may get from modules that it has or imports, under any name: an alias
        that the same code binds does not exist before it runs."""
        loaded = (self._namespace.get(each) for each in facts.loads)
        waiting = [each for each in (*loaded, *map(_modules.get, facts.imports)) if each is not None]
        waiting = [each for each in waiting if is_module(each) or is_class(each)]
        met = set(map(id, waiting))
        while waiting:
            table = _table(waiting.pop())
            found = (table.get(key) for key in facts.attributes)
            for each in [each for each in found if each is not None and (is_class(each) or is_module(each))]:
                if id(each) not in met:
                    met.add(id(each))
                    waiting.append(each)
                    yield each

    def _containers(
        self, facts: Facts, own_modules: Mapping[str, ModuleType]
    ) -> Iterator[tuple[tuple[str, str], object, Any]]:
        """Lists, sets and dictionaries that are attributes of libraries, and that the code names."""
        for chain in facts.chains:
            owner, _, key = chain.rpartition(".")
            if owner and is_container(held := self._resolve(chain)):
                home = self._resolve(owner)
                place = self._library_name(home, own_modules), key
                if place[0] and place not in _ELSEWHERE:
                    yield place, home, held

    def after(
        self, before: Before, facts: Facts, met: MetInLibraries, own_modules: Mapping[str, ModuleType]
    ) -> set[str]:
        """Records what is another object now, and what the code has certainly set, even if to the same value.

        Modules do not count: libraries import their submodules late. Returns the names of libraries which may have
        been given any object.
        """
        unseen = self._after_calls(facts, met.packages, own_modules) | self._inside(before)
        unseen |= self._on_results(facts, own_modules) | self._on_parts(before)
        self._meet(facts, own_modules)
        for chain in facts.chains:
            owner, _, key = chain.removesuffix("=").rpartition(".")
            if chain[-1:] == "=" and (holder := self._holder(owner, key, own_modules)):
                unseen.add(holder)
            found = self._resolve(owner) if chain[-1:] == "=" else None
            # It may be imported here for the first time.
            if found is not None and (dotted := self._library_name(found, own_modules)):
                self._keys(dotted, found).add(key)
                self.replaced.add((dotted, key))
        for (dotted, key), home, held in self._containers(facts, own_modules):
            if not _same(before.containers.get((dotted, key)), items_of(held, _SPOKEN_OF)):
                self._keys(dotted, home).add(key)
        by_name = not _SETTING.isdisjoint(facts.loads | facts.attributes)
        for dotted, (target, was) in before.tables.items():
            now = _table(target)
            for key in was.keys() | now.keys():
                value = now.get(key, _MISSING)
                if value is was.get(key, _MISSING) or type(value) is ModuleType or key[:2] == "__":
                    continue
                if _is_of_the_worker(value):
                    continue
                if by_name or not _is_wrapped(was.get(key), value):
                    self._keys(dotted, target).add(key)
                    self.replaced.add((dotted, key))
        return unseen | self._on_new(before, facts, met, own_modules)

    def _on_new(
        self, before: Before, facts: Facts, met: MetInLibraries, own_modules: Mapping[str, ModuleType]
    ) -> set[str]:
        """Records what was set on modules and classes that the same code has imported for the first time: their
        former state is unknown."""
        by_name = not _BY_NAME.isdisjoint(facts.loads | facts.attributes)
        unseen = set[str]()
        for target in self._targets(facts, met) if facts.sets or by_name else ():
            dotted = self._library_name(target, own_modules)
            if not dotted or dotted in before.tables or not self._is_new(dotted, before):
                continue
            table = _table(target)
            if keys := {key for key in facts.sets & table.keys() if self._is_users(table[key])}:
                self._keys(dotted, target).update(keys)
            if by_name:
                self._keys(dotted, target)
                self._unseen[dotted] = fresh()
                self._by_origin.add(dotted)
                unseen.add(dotted)
        return unseen

    def _is_new(self, dotted: str, before: Before) -> bool:
        """Whether the module, or that of the class, was not imported before the code ran."""
        while dotted and dotted not in _modules:
            dotted = dotted.rpartition(".")[0]
        return before.imported is not None and dotted not in before.imported

    def _is_users(self, value: object) -> bool:
        """Whether an attribute of a class may have been set: a library's own functions and descriptors were not."""
        while type(value) in (classmethod, staticmethod, property):
            value = value.fget if type(value) is property else value.__func__  # type: ignore[attr-defined]
        if type(value) is FunctionType:
            return value.__globals__ is self._namespace
        return "__get__" not in {key for base in mro(type(value)) for key in attributes(base)}

    def _holder(self, chain: str, key: str, own_modules: Mapping[str, ModuleType]) -> str:
        """The module of a library that has an object on which something was set; empty if it is no such object."""
        owner, _, name = chain.rpartition(".")
        held, home = self._resolve(chain), self._resolve(owner) if owner else None
        dotted = self._library_name(home, own_modules)
        if not dotted or held is None or is_module(held) or is_class(held) or dotted in _SET_BY_ATTRIBUTES:
            return ""
        self._keys(dotted, home)
        self.set_on.add((dotted, name, key))
        self._unseen[dotted] = fresh()
        return dotted

    def _on_results(self, facts: Facts, own_modules: Mapping[str, ModuleType]) -> set[str]:
        """Records libraries whose functions returned an object on which something was set: it may be the library's
        own."""
        if not facts.on_results:
            return set()
        found = map(self._resolve, facts.chains)
        functions = [each for each in found if type(each) in (FunctionType, BuiltinFunctionType)]
        unseen = set[str]()
        for home in {public_name(str(each.__module__)) for each in functions}:
            module = _modules.get(home)
            dotted = self._library_name(module, own_modules)
            if dotted and dotted not in _SET_BY_ATTRIBUTES and dotted not in _GIVING_NEW:
                self._keys(dotted, module)
                self._unseen[dotted] = fresh()
                unseen.add(dotted)
        return unseen

    def _meet(self, facts: Facts, own_modules: Mapping[str, ModuleType]) -> None:
        """Remembers what the code has taken from libraries: it may have another name from now on."""
        taken = {chain.removesuffix("()") for chain in facts.chains} | facts.submodules
        if facts.star:
            modules = {each: _modules.get(each) for each in facts.imports}
            taken |= {
                f"{each}.{key}" for each, found in modules.items() if found is not None for key in vars(found)
            }
        for chain in taken:
            owner, _, key = chain.rpartition(".")
            home = self._resolve(owner) if owner else None
            home = _modules.get(owner) if home is None else home
            held = _table(home).get(key) if home is not None and is_module(home) else None
            if held is not None and is_part(held):
                dotted = self._library_name(home, own_modules)
                if dotted:
                    self.met[id(held)] = LibraryPart(dotted=dotted, home=home, key=key, value=held)

    def meet(self, dotted: str, key: str) -> object:
        """The object of a library with this name, from now on known under any name. Raises KeyError, ImportError."""
        home = importlib.import_module(dotted)
        held = vars(home)[key]
        self.met[id(held)] = LibraryPart(dotted=dotted, home=home, key=key, value=held)
        return held

    def parts(self) -> dict[int, LibraryPart]:
        """Objects that their libraries still have."""
        return {
            each: part for each, part in self.met.items() if _table(part.home).get(part.key) is part.value
        }

    def _on_parts(self, before: Before) -> set[str]:
        """Records libraries whose objects were changed through a name of the user's."""
        unseen = set[str]()
        for each, was in before.parts.items():
            part = self.met[each]
            if not _same(was, part.items()):
                keys = self._keys(part.dotted, part.home)
                if is_plain(part.value):
                    keys.add(part.key)
                else:
                    unseen.add(part.dotted)
                    self._unseen[part.dotted] = fresh()
        return unseen

    def _inside(self, before: Before) -> set[str]:
        """Records differences in modules that were called into."""
        unseen = set[str]()
        for dotted, (target, was) in before.modules.items():
            now = insides(target)
            for key in different(was, now):
                if (dotted, key) in _ELSEWHERE:
                    continue
                keys, value = self._keys(dotted, target), vars(target).get(key)
                if key not in was or key not in now or was[key][0] is not now[key][0]:
                    self.replaced.add((dotted, key))
                if is_plain(value) and not (value is not None and is_class(value)):
                    keys.add(key)
                else:
                    unseen.add(dotted)
                    self.altered[dotted, key] = target
                    self._unseen[dotted] = fresh()
        return unseen

    def _after_calls(
        self, facts: Facts, libraries: frozenset[str], own_modules: Mapping[str, ModuleType]
    ) -> set[str]:
        unseen = set[str]()
        for library, home in libraries_set(facts, libraries, self._namespace).items():
            if library not in own_modules:
                self._keys(library, home)
                self._unseen[library] = fresh()
                unseen.add(library)
        if _FUTURE in facts.imports:
            self._features |= facts.attributes & FEATURES
            self._keys(_FUTURE, _modules[_FUTURE])
            self._unseen[_FUTURE] = " ".join(sorted(self._features))
        return unseen

    def changed(self, changes: LibraryChanges) -> None:
        """Records what a comparison of libraries has found. Their own state matters only to their users."""
        for library in changes.changed:
            self.changed_inside(library, inside(library))
            self._by_origin.add(key_of(inside(library)))
        of_process = {each: _modules.get(each) for each in changes.process}
        for dotted, target in {**changes.set_on, **of_process}.items():
            self._keys(dotted, target)
            self._unseen[dotted] = fresh()
            self._by_origin.add(dotted)

    def is_unseen(self, location: Location) -> bool:
        """Whether all that is known of what was set there is which step did it."""
        return kind_of(location) == "module" and key_of(location) in self._by_origin

    def changed_inside(self, library: str, part: Location) -> None:
        """Records a change of the library's own state, which cannot be inspected, and matters only to its users."""
        self._keys(key_of(part), _modules.get(library))
        self._called.add(key_of(part))
        self._unseen[key_of(part)] = fresh()

    def _keys(self, dotted: str, target: object) -> set[str]:
        """The set of attributes that were set on it, to add another one."""
        self._called.discard(dotted)
        return self.found.setdefault(dotted, (target, set()))[1]

    def noted(self) -> dict[str, tuple[object, frozenset[str], bool]]:
        """By dotted name: the object, its attributes that were set, and whether more inside it may have been. Without
        libraries that are recorded only for their calls, and features of the compiler."""
        return {
            dotted: (target, frozenset(keys), dotted in self._unseen)
            for dotted, (target, keys) in self.found.items()
            if dotted not in self._called and dotted != _FUTURE
        }

    def set_there(self) -> Iterator[tuple[str, object, str]]:
        """What was set, and where: a dotted name, the object, and the name of an attribute."""
        for dotted, (target, keys) in self.found.items():
            yield from ((dotted, target, key) for key in sorted(keys))
        yield from ((dotted, target, key) for (dotted, key), target in self.altered.items())

    def packages_unseen(self) -> frozenset[str]:
        """Libraries in which something was set that the tracker has not seen."""
        return frozenset(dotted.partition(".")[0] for dotted in self._unseen if dotted in _modules)

    def changed_unseen(self, library: str) -> None:
        """Records that something was set in it that cannot be inspected, as a former process has seen."""
        self._keys(library, _modules[library])
        self._unseen[library] = fresh()

    def note(self, dotted: str, target: object, key: str, *, replaced: bool) -> None:
        """Records that this attribute was set, as a former process has seen."""
        self._keys(dotted, target).add(key)
        if replaced:
            self.replaced.add((dotted, key))

    def values(self, dotted: str) -> dict[str, object]:
        """The current values of the attributes that were set."""
        target, keys = self.found[dotted]
        table = _table(target)
        values = {key: table[key] for key in sorted(keys) if key in table}
        unseen = self._unseen.get(dotted), tuple(called_back(dotted))
        return values | {"": unseen} if any(unseen) else values

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


def _is_wrapped(was: object, now: object) -> bool:
    """Whether a library has wrapped its method in a function of its own, as on the first use of a class."""
    if type(was) is not FunctionType or type(now) is not FunctionType or not now.__closure__:
        return False
    ours = now.__module__ == was.__module__ and is_of_library(now.__code__.co_filename)
    return ours and any(cell.cell_contents is was for cell in now.__closure__)


def _same(before: list[object] | None, after: list[object]) -> bool:
    """False for a library that was imported meanwhile, since its former state is unknown."""
    return before is not None and len(before) == len(after) and all(map(is_, before, after))


def _is_of_the_worker(value: object) -> bool:
    """Whether it is the worker's, such as the `asyncio.run` for cells that await, which is set when the first one
    does."""
    if type(value) is not FunctionType:
        return False
    home = str(value.__globals__.get("__name__", ""))
    return home.startswith("cenote_worker.") and value.__globals__ is getattr(
        _modules.get(home), "__dict__", None
    )


def _table(value: object) -> Mapping[str, object]:
    if is_module(value):
        table: Mapping[str, object] = ModuleType.__getattribute__(value, "__dict__")
        return table
    if value is not None and is_class(value):
        return attributes(value)  # type: ignore[arg-type]
    return {}
