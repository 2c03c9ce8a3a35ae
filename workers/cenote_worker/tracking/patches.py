"""What steps have set on modules and classes of libraries, and in them: state that every later step may meet."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, Protocol

import xxhash

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import DATABASES, Location, Version, key_of, module
from cenote_worker.tracking import duckdb_state
from cenote_worker.tracking.classes import (
    Classes,
    attributes,
    is_class,
    is_module,
    module_of,
    mro,
    public_name,
    qualname,
)
from cenote_worker.tracking.facts import Facts
from cenote_worker.tracking.hidden import CALLING_BACK, QUIET, called_back
from cenote_worker.tracking.insides import (
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
from cenote_worker.tracking.own_modules import is_of_library
from cenote_worker.tracking.picture import fresh
from cenote_worker.tracking.settings import FEATURES, libraries_set

__builtins__ = BUILTINS

_SETTING: Final = frozenset(
    ("setattr", "delattr", "__dict__", "vars", "__setattr__", "update", "register", "reload", "patch")
)
_modules = sys.modules
_MISSING: Final = object()

_FUTURE: Final = "__future__"
"""Whose features hold for all cells behind the one that imports them."""

_ELSEWHERE: Final = frozenset(
    (("sys", "path"), ("sys", "modules"), ("warnings", "filters"), ("logging", "root"), ("logging", "_handlers"),
     ("logging", "_handlerList"), ("matplotlib", "rcParams"), ("matplotlib.pyplot", "rcParams"))
)  # fmt: skip
"""What changes as hidden state does, or is seen otherwise."""

_GIVING_NEW: Final = frozenset(("builtins", "copy", "logging", "json"))
"""What functions of theirs give is nobody else's, or hidden state."""

_OF_ANY_STEP: Final = frozenset(("warnings", "signal", "asyncio"))
"""Libraries that call back whoever runs a step."""

_SPOKEN_OF: Final = 100_000
"""Items of a table of a library's that code speaks of itself; what is larger is not compared."""

_SET_BY_ATTRIBUTES: Final = frozenset(("pandas", "decimal", "os", "matplotlib", "matplotlib.pyplot"))
"""What is set on objects of theirs is hidden state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What a step may set. tables: library objects by their dotted name, with the attributes that they had.

    containers: by that name and the attribute's, with the items that they had. modules: those that it calls into.
    parts: what has no need to be spoken of, since the user's names lead to it, by its id.
    """

    tables: dict[str, tuple[object, dict[str, object]]] = field(default_factory=dict)
    containers: dict[tuple[str, str], list[object]] = field(default_factory=dict)
    modules: dict[str, tuple[ModuleType, Insides]] = field(default_factory=dict)
    parts: dict[int, list[object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A container or an instance that is an attribute of a library's module."""

    dotted: str
    home: object
    key: str
    value: object

    @property
    def is_plain(self) -> bool:
        """Whether it is pickled by its content in any case."""
        return type(self.value) in (dict, list, set)

    @property
    def is_seen(self) -> bool:
        """Whether what changes in it is hidden state."""
        return (self.dotted, self.key) in _ELSEWHERE or self.dotted in _SET_BY_ATTRIBUTES

    def items(self) -> list[object]:
        return parts_of(self.value, _SPOKEN_OF)


class MetInLibraries(Protocol):
    """What a step can get at without speaking of it: by the names of modules, and classes by their ids."""

    packages: frozenset[str]
    classes: dict[int, type]
    of_libraries: set[int]


def _with_beneath(libraries: Set[str]) -> Set[str]:
    """And what steps that use them may meet of others."""
    if duckdb_state.is_met(libraries):
        libraries |= {key_of(DATABASES)}
    return libraries if libraries <= QUIET else libraries | {"logging"}


class Patches:
    """What was set, by the dotted name of the module or class that it was set on."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._classes = Classes()
        self.found: dict[str, tuple[object, set[str]]] = {}
        self._unseen: dict[str, str] = {}
        """Of libraries in which something was set that cannot be looked at: stands for all of that."""
        self._called = set[str]()
        """Libraries that are found for whom they call only."""
        self._features = frozenset[str]()
        self.replaced = set[tuple[str, str]]()
        """Of what was set, by the same name and the attribute's, what is another object than the library had."""
        self.changed = dict[tuple[str, str], object]()
        """Objects of modules in which something is otherwise that cannot be looked at, by the same."""
        self.set_on = set[tuple[str, str, str]]()
        """Attributes of such objects that were set: the module, the object's name there, and the attribute's."""
        self.met: dict[int, Part] = {}
        """By their ids: objects of libraries that code has spoken of, and that a user's name may lead to."""

    @property
    def version(self) -> Version:
        """Of LIBRARIES."""
        return Version(xxhash.xxh3_64_hexdigest(repr(sorted(self.found.keys() - self._called)).encode()))

    def roots(self, libraries: Set[str]) -> set[Location]:
        """What any step may meet, or one that uses these libraries: whom they call, only their users meet."""
        return self._roots_among(_with_beneath(libraries) | _OF_ANY_STEP)

    def further_roots(self, libraries: Set[str]) -> set[Location]:
        """As `roots`, where nothing has run since it was asked: what any step may meet is known from there."""
        return self._roots_among(_with_beneath(libraries))

    def _roots_among(self, libraries: Set[str]) -> set[Location]:
        for library in (libraries & CALLING_BACK.keys()) - self.found.keys():
            if called_back(library):
                self.found[library] = _modules[library], set()
                self._called.add(library)
        return {module(each) for each in self.found if each not in self._called or each in libraries}

    def before(self, facts: Facts, met: MetInLibraries, own_modules: Mapping[str, ModuleType]) -> Before:
        """Looks at what code that sets attributes can get at by its names, and by what those hold."""
        containers = {
            place: items_of(held, _SPOKEN_OF) for place, _, held in self._containers(facts, own_modules)
        }
        called = {str(each.__name__): each for each in homes(self._called_by(facts))}
        modules = {key: (each, insides(each)) for key, each in called.items() if key not in own_modules}
        parts = {each: self.met[each].items() for each in met.of_libraries if not self.met[each].is_seen}
        if not facts.sets and not (facts.loads | facts.attributes) & _SETTING:
            return Before(containers=containers, modules=modules, parts=parts)
        tables = dict[str, tuple[object, dict[str, object]]]()
        for target in self._targets(facts, met):
            dotted = self._library_name(target, own_modules)
            if dotted:
                tables[dotted] = target, dict(_table(target))
        return Before(tables=tables, containers=containers, modules=modules, parts=parts)

    def _called_by(self, facts: Facts) -> Iterator[object]:
        """What may be a module of a library that the code calls into, or a function or a class of one."""
        for owner in {chain.rstrip("()=").rpartition(".")[0] for chain in facts.chains}:
            yield self._resolve(owner)
        yield from map(self._namespace.get, facts.loads)
        yield from map(_modules.get, facts.imports)

    def _targets(self, facts: Facts, met: MetInLibraries) -> Iterator[object]:
        for chain in facts.chains | facts.imports:
            if chain[-1:] != "=":
                yield self._resolve(chain.removesuffix("()"))
        yield from map(_modules.get, met.packages)
        yield from met.classes.values()
        if "type" in facts.loads or "__class__" in facts.attributes:
            for variable in facts.loads & self._namespace.keys():
                yield from mro(type(self._namespace[variable]))

    def _containers(
        self, facts: Facts, own_modules: Mapping[str, ModuleType]
    ) -> Iterator[tuple[tuple[str, str], object, Any]]:
        """Lists, sets and dictionaries that are attributes of libraries, and that the code speaks of."""
        for chain in facts.chains:
            owner, _, key = chain.rpartition(".")
            if owner and is_container(held := self._resolve(chain)):
                home = self._resolve(owner)
                place = self._library_name(home, own_modules), key
                if place[0] and place not in _ELSEWHERE:
                    yield place, home, held

    def after(
        self, before: Before, facts: Facts, libraries: frozenset[str], own_modules: Mapping[str, ModuleType]
    ) -> set[str]:
        """Notes what is another object now, and what the code has certainly set, though it be to the same value.

        Modules do not count: libraries import parts of themselves late. Gives the names of libraries which may have
        been handed anything.
        """
        unseen = self._after_calls(facts, libraries, own_modules) | self._inside(before)
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
        return unseen

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
        """Notes libraries whose functions have given something that was set something on: it may be their own."""
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
        """Remembers what the code has taken from libraries: it may be known by another name from now on."""
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
                    self.met[id(held)] = Part(dotted=dotted, home=home, key=key, value=held)

    def meet(self, dotted: str, key: str) -> object:
        """What a library has under this name, from now on known by whatever name. Raises KeyError, ImportError."""
        home = importlib.import_module(dotted)
        held = vars(home)[key]
        self.met[id(held)] = Part(dotted=dotted, home=home, key=key, value=held)
        return held

    def parts(self) -> dict[int, Part]:
        """Those that their libraries still have."""
        return {
            each: part for each, part in self.met.items() if _table(part.home).get(part.key) is part.value
        }

    def _on_parts(self, before: Before) -> set[str]:
        """Notes libraries of which something was changed by a name of the user's."""
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
        """Notes what modules that were called into have otherwise than before."""
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
                    self.changed[dotted, key] = target
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

    def changed_inside(self, library: str, part: Location) -> None:
        """It has something of its own that nobody can look at, which only those meet who use it."""
        self._keys(key_of(part), _modules.get(library))
        self._called.add(key_of(part))
        self._unseen[key_of(part)] = fresh()

    def _keys(self, dotted: str, target: object) -> set[str]:
        """The attributes that were set on it, for one more."""
        self._called.discard(dotted)
        return self.found.setdefault(dotted, (target, set()))[1]

    def set_there(self) -> Iterator[tuple[str, object, str]]:
        """What was set, and where: a dotted name, what has it, and the name of an attribute."""
        for dotted, (target, keys) in self.found.items():
            yield from ((dotted, target, key) for key in sorted(keys))
        yield from ((dotted, target, key) for (dotted, key), target in self.changed.items())

    def packages_unseen(self) -> frozenset[str]:
        """Libraries in which something was set that nobody has seen."""
        return frozenset(dotted.partition(".")[0] for dotted in self._unseen if dotted in _modules)

    def changed_unseen(self, library: str) -> None:
        """Something was set in it that nobody can look at, as a former process has seen."""
        self._keys(library, _modules[library])
        self._unseen[library] = fresh()

    def note(self, dotted: str, target: object, key: str, *, replaced: bool) -> None:
        """This was set on it, as a former process has seen."""
        self._keys(dotted, target).add(key)
        if replaced:
            self.replaced.add((dotted, key))

    def values(self, dotted: str) -> dict[str, object]:
        """The attributes that were set, as they are now."""
        target, keys = self.found[dotted]
        table = _table(target)
        values = {key: table[key] for key in sorted(keys) if key in table}
        unseen = self._unseen.get(dotted), called_back(dotted)
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
    """Whether a library has put a function of its own around its method, as on the first use of a class."""
    if type(was) is not FunctionType or type(now) is not FunctionType or not now.__closure__:
        return False
    ours = now.__module__ == was.__module__ and is_of_library(now.__code__.co_filename)
    return ours and any(cell.cell_contents is was for cell in now.__closure__)


def _same(before: list[object] | None, after: list[object]) -> bool:
    """Of a library that was imported meanwhile nobody knows what it had."""
    return before is not None and len(before) == len(after) and all(map(is_, before, after))


def _is_of_the_worker(value: object) -> bool:
    """As the `asyncio.run` that can be called in a cell that awaits, which is set when the first one does."""
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
