"""An object's whole content as a digest, and other facts found on the way.

The digest is that of a rooted graph in the order of its first visit: each compound object gets a number when it is
first met, and is described by its kind and by atoms and numbers. So shared objects are distinguished from equal ones,
cycles end, and equal digests mean states that no program can distinguish, except by addresses. `marshal` in its
version 2 writes atoms: it preserves the order of a dictionary, the sign of a zero and the bits of a NaN, has no
references of its own and never runs user code.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Mapping, Set, Sized
from itertools import chain, count
from operator import length_hint, ne
from types import CodeType, ModuleType
from typing import Any, Final

import xxhash

from cenote_worker.execution.trace import ANYTHING, BLIND, Location, module, name
from cenote_worker.jail.tracking.budget import TOO_LARGE, InspectionBudget
from cenote_worker.jail.tracking.code.bytecode_effects import NOTHING, Facts, facts_of
from cenote_worker.jail.tracking.code.sql_queries import UNKNOWN
from cenote_worker.jail.tracking.descriptions.classes import InstanceLayout, tells_what_it_holds
from cenote_worker.jail.tracking.descriptions.known_digests import KnownDigests
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import (
    FEWEST,
    Atoms,
    atoms_of,
    atoms_of_keys,
    atoms_of_values,
    digest_of_numbers,
    identities_of,
    packed,
)
from cenote_worker.jail.tracking.process_state.modules import imported_of
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

ATOMS: Final = frozenset((int, float, str, bytes, bool, complex, type(None), type(Ellipsis)))
_INEXACT: Final = frozenset((float, complex))
_CHECKED_EVERY = 512
_BULK = 16
"""Values of one container from which on inspecting them all at once pays."""

_OF_INSTANCES: Final = 2
"""Instances that are inspected together in the time that one object takes."""

_MANY: Final = 100_000
"""Values of one container that are not inspected one by one if avoidable."""

_MANY_OBJECTS: Final = 10_000
"""Values of one container from which on the ones to be described are counted first."""

_ROOM: Final = 1_000
"""Items of a list: none is preallocated with more."""

_FLAT: Final = frozenset((tuple, list, dict))

_references_to = sys.getrefcount


class _Plain:
    """An instance whose dictionary nothing else refers to."""

    def __init__(self) -> None:
        self.value = 0


_PLAIN: Final = _Plain()
_OF_ITS_INSTANCE: Final = max(map(_references_to, list(map(vars, (_PLAIN,)))))
"""References to such a dictionary in a list, as `map` counts them."""

Stretch = tuple[int, int]
"""A range of memory: its first address, and the one after its last."""

Handler = Callable[["ObjectGraph", Any], object]
"""Describes one object: atoms, tokens, and tuples, lists and dicts of them; `ObjectGraph.token` gives tokens."""

ManyHandler = Callable[["ObjectGraph", list[Any]], object]
"""Describes many objects of one type together; None if they must be described one by one."""


_referents = gc.get_referents
_qualname = type.__dict__["__qualname__"].__get__
_ASKING_BY_ANOTHER_NAME: Final = Facts(asks=frozenset((UNKNOWN,)))
"""Facts about an object that has a function of a database: its arguments are not found under the function's usual
names."""


_IMPORTING_BY_ANOTHER_NAME: Final = Facts(imports=frozenset(("__main__",)))
"""Facts about an object that has `import_module` under another name: the name in the code doesn't reveal its
argument."""


class ObjectGraph:
    """One walk over everything reachable from an object.

    holds: ids of objects in it that can change, or have an identity, with their numbers. covered: of memory that it
    copies before it writes. owned: memory of arrays, by the id of its owner. shown: memory that may be an array's,
    known by address only. refers: locations that it refers to without holding them: names that its functions use,
    classes of its instances. kin: names whose functions and classes it holds. packages: libraries that it has objects
    of. tools: those that it has modules or functions of. words: the names of those functions there. classes: mutable
    classes of libraries, by id. facts: of the user's code in it. opaque: why nothing is known of its content; empty
    when the digest is complete. restless: some of that content may run code when released, as files do. sealed: the
    digest is valid in this process only. stays: why it cannot be pickled. blind: it holds an object that may have
    hidden references. calling: one that may have been given functions to call. finalizes: it holds a class with a
    `__del__`. boundless: any object may be in it.
    """

    def __init__(
        self,
        namespace: dict[str, object],
        own_modules: Mapping[str, ModuleType],
        untouched: KnownDigests,
        budget: InspectionBudget,
    ) -> None:
        self.namespace = namespace
        self.own_modules = own_modules
        self.budget = budget
        self._untouched = untouched
        self.holds: dict[int, int] = {}
        self.covered: dict[int, int] = {}
        self.owned: dict[int, Stretch] = {}
        self.shown: list[Stretch] = []
        self.refers: set[Location] = set()
        self.kin: set[str] = set()
        self.packages: set[str] = set()
        self.tools: set[str] = set()
        self.words: set[str] = set()
        self.classes: dict[int, type] = {}
        self.facts = NOTHING
        self.opaque = ""
        self.sealed = False
        self.stays = ""
        self.restless = False
        self.blind = False
        self.calling = False
        self.finalizes = False
        self.boundless = False
        self.root: object = None
        self.layouts: dict[int, InstanceLayout] = {}
        """By id, of classes that were met: no code of the user's runs meanwhile, so they stay as they are."""
        self._describe_many: ManyHandler = _one_by_one
        self._numbers: dict[int, int] = {}
        self._left_out = 0
        """Numbers of objects that only one described object refers to, and that are found by that one."""
        self._places: dict[int, int] = {}
        self._queue: list[tuple[object, int]] = []
        self._present: tuple[object, int] = (None, id(None))
        """The object that is being described, with its identity: each call of `id` is an event for audit hooks."""
        self._weak: list[object] = []
        self._digest = xxhash.xxh3_128()

    def walk(
        self,
        value: object,
        root: object,
        handler_of: Callable[[object], Handler],
        describe_many: ManyHandler | None = None,
    ) -> str:
        """The digest of everything reachable from an object. root: the object that is described even if it has a
        name.

        Raises TooDear, and any error of a library that a cell has changed.
        """
        self.root = root
        self._describe_many = describe_many or _one_by_one
        self._put(("root", self.token(value)))
        queue, index = self._queue, 0
        while index < len(queue) or self._weak:
            if index == len(queue):
                self._put_referred(self._weak.pop())
                continue
            self._present = queue[index]
            found = self._present[0]
            self._put((_qualname(type(found)), handler_of(found)(self, found)))
            index += 1
            if index % _CHECKED_EVERY == 0:
                self.budget.spend(_CHECKED_EVERY)
                self.budget.check()
        self.budget.spend(index % _CHECKED_EVERY)
        return self._digest.hexdigest()

    def _put_referred(self, value: object) -> None:
        """Describes a weak reference's target. A target that is also held here lives as long as the reference; else
        it may go."""
        if value is None or id(value) not in self._numbers:
            self.unknown("a weak reference")
        self._put(self.token(value))

    def _put(self, description: Any) -> None:
        self._digest.update(packed(description))

    # -- for handlers --

    def token(self, value: object) -> object:
        """The representation of a value in the description of its holder."""
        if type(value) in ATOMS and value == value:
            return value
        identity = id(value)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self._numbers) + self._left_out
            self._queue.append((value, identity))
        return (number,)

    def tokens(self, values: Iterable[object]) -> list[object]:
        """Raises TooDear for more objects than the budget allows, before any of them is numbered."""
        if length_hint(values) >= _MANY_OBJECTS and isinstance(values, Sized):
            identities = {id(value) for value in values if type(value) not in ATOMS}
            self.budget.foresee(len(identities - self._numbers.keys()))
        return [value if type(value) in ATOMS and value == value else self.token(value) for value in values]

    def changeable(self, value: object) -> None:
        """Other holders of the object see what is done to it here."""
        present, identity = self._present
        if value is not present:
            identity = id(value)
        self.holds[identity] = self._numbers.get(identity, -1)

    def cover(self, memory: object) -> None:
        """The object shows this memory, and copies it before it writes."""
        self.covered[id(memory)] = -1

    def weakly(self, value: object) -> None:
        """The object refers to `value` without holding it; None for a dead reference."""
        self._weak.append(value)

    def place(self, memory: object) -> int:
        """A number for memory that several objects may show, so that the sharing is part of the digest."""
        return self.place_at(id(memory))

    def place_at(self, address: int) -> int:
        """The same for memory that is identified by an address of its own."""
        return self._places.setdefault(address, len(self._places))

    def inline(self, part: dict[str, object]) -> object:
        """An instance's own dictionary, described with the instance; other holders of the dictionary refer to it."""
        identity = id(part)
        if identity in self._numbers:
            return self.token(part)
        self._numbers[identity] = self.holds[identity] = len(self._numbers) + self._left_out
        return self.mapping(part)

    def sequence(self, values: Any, *, plain: bool = False) -> object:
        """Describes a list or tuple, which may be long. plain: the identity of NaNs in it doesn't matter."""
        if len(values) >= _MANY:
            self._foresee(values[0], values[-1], len(values))
            if digest := digest_of_numbers(values):
                return ("numbers", len(values), digest)
        if len(values) >= FEWEST and (atoms := atoms_of(values)):
            return ("atoms", values) if plain or not atoms.nan else ("tokens", self.tokens(values))
        kinds = set(map(type, values))
        if kinds <= ATOMS and (plain or not _has_nan(values, kinds)):
            return ("atoms", values)
        if len(values) >= _BULK and self._flat(values, kinds):
            return ("flat", values)
        if (told := self._many(values, kinds)) is not None:
            return told
        return ("tokens", self.tokens(values))

    def mapping(self, values: dict[Any, object]) -> object:
        if len(values) >= _MANY:
            items = values.values()
            self._foresee(next(iter(items)), next(reversed(items)), len(values))
        if (
            len(values) >= FEWEST
            and _are_atoms(atoms_of_keys(values))
            and _are_atoms(atoms_of_values(values))
        ):
            return ("atoms", values)
        keys = set(map(type, values))
        if keys <= ATOMS and not _has_nan(values, keys):
            kinds = set(map(type, values.values()))
            if kinds <= ATOMS and not _has_nan(values.values(), kinds):
                return ("atoms", values)
            if len(values) >= _BULK and self._flat(values.values(), kinds):
                return ("flat", values)
            if (told := self._many(values.values(), kinds)) is not None:
                return ("values", list(values), told)
        return ("tokens", self.tokens(values.keys()), self.tokens(values.values()))

    def refer(self, location: Location) -> None:
        self.refers.add(location)

    def code(self, code: CodeType, home: str) -> None:
        """The user's code, which may run when the object is used. home: its module; empty for the namespace's."""
        facts = facts_of(code)
        self.facts |= facts
        self.refers.update(map(module, imported_of(facts, self.own_modules)))
        if home:
            self.refers.add(module(home))
        else:
            self.refers.update(map(name, facts.loads))
            self.refers.update(map(name, facts.stores))

    def unknown(self, reason: str, *, quiet: bool = False) -> None:
        """The object has content that cannot be inspected. quiet: releasing that content runs no code."""
        self.opaque = self.opaque or reason
        self.restless = self.restless or not quiet

    def seal(self, reason: str) -> None:
        """The object has a part that never changes and of which only the identity is known."""
        self.sealed = self.blind = True
        self.stay(reason)

    def stay(self, reason: str) -> None:
        """The object cannot be brought over from another process; its content can be inspected."""
        self.stays = self.stays or reason

    def follow(self, value: object) -> object:
        """Describes an unknown object by what the garbage collector says that it holds. Its content stays unknown."""
        self.unknown(f"a {_qualname(type(value))} cannot be looked into")
        self.changeable(value)
        if not tells_what_it_holds(type(value)):
            self.blind = True
            self.stay(f"a {_qualname(type(value))} {BLIND}")
        held = [other for other in _referents(value) if not self._is_everything(other)]
        return ("opaque", self.tokens(chain.from_iterable(map(_filled, held))))

    def tool(self, library: str, function: str = "") -> None:
        """A module or a function of it, whose effects there no object shows. function: its qualified name there, by
        which it is known under any name in the user's code."""
        self.packages.add(library)
        self.tools.add(f"{library}:{function.rpartition('.')[2]}" if function else library)
        if function and "<locals>" not in function:
            self.words.add(function.rpartition(".")[2])
        if function and library in ("duckdb", "_duckdb"):
            self.facts |= _ASKING_BY_ANOTHER_NAME
        if function == "import_module" and self.namespace.get(function) is not self.root:
            self.facts |= _IMPORTING_BY_ANOTHER_NAME

    def out_of_sight(self, reason: str) -> None:
        """The object may lead anywhere."""
        self.boundless = True
        self.unknown(reason)
        self.refers.add(ANYTHING)

    def memory(self, buffer: Any, size: int, owner: Any = None) -> str:
        """The digest of plain memory. buffer: contiguous. owner: the array that has it, if any. Of memory that is too
        large only the existence is known."""
        if known := self._untouched.digest(buffer, size):
            return known
        if not self.budget.allows(size):
            self.unknown(TOO_LARGE)
            return ""
        digest = xxhash.xxh3_128_hexdigest(buffer)
        if owner is not None:
            self._untouched.hashed(buffer, size, owner, digest)
        return digest

    # -- many at once --

    def _many(self, values: Any, kinds: set[type]) -> object:
        """Describes many objects of one type together; None if they must be described one by one."""
        if len(values) < _BULK or len(kinds) != 1 or not kinds.isdisjoint(_FLAT):
            return None
        return self._describe_many(self, list(values))

    def foresee_instances(self, count: int) -> None:
        """Counts instances that are about to be described together. Raises TooDear."""
        self.budget.spend(count // _OF_INSTANCES)
        self.budget.check()

    def alike(self, cls: type, identities: list[int], tables: list[dict[str, object]]) -> object:
        """Describes many instances of one class that have nothing but these attributes; None unless all attributes
        are atoms, and none of the objects has another holder that was met before. tables: in a list that is their
        only owner beside the instances."""
        if not set(map(type, chain.from_iterable(tables))) <= {str}:
            return None
        kinds = set(map(type, _values_in(tables)))
        if not kinds <= ATOMS or (_INEXACT & kinds and _has_nan(list(_values_in(tables)), kinds)):
            return None
        is_only_theirs = max(map(_references_to, tables)) == _OF_ITS_INSTANCE
        if not self._number_all(identities if is_only_theirs else identities + identities_of(tables)):
            return None
        if is_only_theirs:  # nothing else can share them; others have the same numbers as if something did
            self._left_out += len(tables)
        return ("instances", self.token(cls), tables)

    def _foresee(self, first: object, last: object, count: int) -> None:
        """Checks the budget for many containers of one kind, judging by the first and the last: the least that
        `_flat` costs.

        Finding that out after looking at each would write to all of them in vain. Raises TooDear.
        """
        if type(first) is type(last) and type(first) in _FLAT and first is not last:
            self.budget.foresee(count // _BULK)

    def _flat(self, values: Any, kinds: set[type]) -> bool:
        """Whether all are containers of one kind that hold nothing but atoms and are referred to nowhere else."""
        if len(kinds) != 1:
            return False
        (kind,) = kinds
        if kind not in _FLAT:
            return False
        self.budget.spend(len(values) // _BULK)  # one of many costs that much less than one by itself
        self.budget.check()
        inner = set(map(type, chain.from_iterable(values)))
        if kind is dict:
            inner |= set(map(type, _values_in(values)))
        if not inner <= ATOMS:
            return False
        return kind is tuple or self._number_all(identities_of(list(values)))

    def _number_all(self, identities: list[int]) -> bool:
        numbered = dict(zip(identities, count(len(self._numbers) + self._left_out), strict=False))
        if len(numbered) != len(identities) or not self._numbers.keys().isdisjoint(numbered.keys()):
            return False
        self._numbers = _joined(self._numbers, numbered)
        self.holds = _joined(self.holds, numbered)
        return True

    def _is_everything(self, value: object) -> bool:
        """Whether it is a dictionary of globals or a module, which lead to everything else."""
        if type(value) is dict:
            return "__builtins__" in value or "__spec__" in value
        return type(value) is ModuleType


def _joined(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    """Both; the other one prevails. A copy of many entries takes a tenth of the time of entering them."""
    if len(other) < len(one):
        one.update(other)
        return one
    return other | {key: number for key, number in one.items() if key not in other}


def _values_in(tables: Iterable[dict[Any, object]]) -> Iterable[object]:
    return chain.from_iterable(map(dict.values, tables))


def _one_by_one(_graph: ObjectGraph, _values: list[Any]) -> object:
    return None


def _filled(held: object) -> Iterable[object]:
    """What an object of C code holds. It may have preallocated a list that is not filled yet: reading a missing item
    would crash the process, but the garbage collector skips it."""
    if type(held) not in (list, tuple) or len(held) > _ROOM:  # type: ignore[arg-type]
        return (held,)
    found = _referents(held)
    return (held,) if len(found) == len(held) else found  # type: ignore[arg-type]


def _are_atoms(atoms: Atoms | None) -> bool:
    return atoms is not None and not atoms.nan


def _has_nan(values: Any, kinds: Set[type]) -> bool:
    """Whether there is a NaN. Containers find a NaN by identity, so two of them differ."""
    return not _INEXACT.isdisjoint(kinds) and any(map(ne, values, values))
