"""Pictures of all names: who leads to whom, who shares with whom, which version each has.

A picture holds until something could have changed its object: the next step that can reach it, or somebody outside.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

import xxhash

from cenote_worker.execution.trace import (
    ABSENT,
    ANYTHING,
    DATABASES,
    RESULTS,
    Location,
    Version,
    key_of,
    kind_of,
    module,
    name,
)
from cenote_worker.jail.tracking.budget import TOO_LARGE, InspectionBudget
from cenote_worker.jail.tracking.code.bytecode_effects import NOTHING
from cenote_worker.jail.tracking.descriptions.known_digests import KnownDigests
from cenote_worker.jail.tracking.fingerprint import UNSEEN, Fingerprint, Handlers, fingerprint_of, fresh
from cenote_worker.jail.tracking.name_table import NameTable
from cenote_worker.jail.tracking.process_state.library_changes import LibraryState
from cenote_worker.jail.tracking.process_state.modules import OwnModules
from cenote_worker.jail.tracking.process_state.monkeypatches import Monkeypatches
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_TOLD: Final = 5_000
"""Versions by origin that are remembered."""
_LARGE = 2_000
"""Objects in one picture from which on they are not entered one by one among the owners."""

_INTERNAL: Final = frozenset(
    ("__builtins__", "__warningregistry__", "__name__", "__doc__", "__package__", "__loader__", "__spec__")
)
"""What a namespace has of itself."""

_OF_MODULES: Final = (_INTERNAL - {"__doc__"}) | {"__cached__", "__file__", "__path__"}
"""What a module has of itself; whatever else begins like these may have been set, and may be what gives the rest."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """That a value has more objects than can be met, so that any may be in it.

    size: of the container that it is, 0 for others. seconds: what a look might cost.
    """

    picture: Fingerprint
    type: type
    size: int
    seconds: float

    def holds_for(self, value: object, budget: InspectionBudget) -> bool:
        """Until the name has another value, or this one is much smaller, or there is much more time."""
        return (
            self.picture.identity == id(value)
            and self.type is type(value)
            and 2 * _size(value) >= self.size
            and budget.seconds <= 2 * self.seconds
        )


def _size(value: object) -> int:
    return len(value) if type(value) in (list, dict, set, deque) else 0  # type: ignore[arg-type]


class ObjectIndex:
    """Of one namespace."""

    def __init__(
        self,
        namespace: dict[str, object],
        own_modules: OwnModules,
        untouched: KnownDigests | None = None,
        is_collecting: Callable[[], bool] = gc.isenabled,
    ) -> None:
        """untouched: what tells memory that need not be read. is_collecting: see `LibraryState`."""
        self.namespace = namespace
        self.own_modules = own_modules
        self.patches = Monkeypatches(namespace)
        self.libraries = LibraryState(is_collecting)
        self.handlers = Handlers()
        self.untouched = untouched if untouched is not None else KnownDigests()
        self._pictures: dict[Location, Fingerprint] = {}
        self._owners: dict[int, set[Location]] = {}
        self._large: set[Location] = set()
        self._too_large: dict[Location, _Verdict] = {}
        """What is not looked at again: to find that out for each step costs each as much as it may cost."""
        self._lent: dict[Location, frozenset[Location]] = {}
        """What was handed to libraries and to objects that do not show what they refer to."""
        self.states: dict[str, Version] = {}
        """Hidden state as it was looked at last, however long ago."""
        self.first_states: dict[str, Version] = {}
        """Hidden state as it was when it was looked at first."""
        self.left: dict[str, Version] | None = None
        """Hidden state as the latest step has left it; None once something else may have run since."""
        self._told: dict[Version, Version] = {}
        """By what is known in this process alone of something: its version by how it came about."""
        self._origins = set[Version]()
        self._nailed: set[int] = set()
        """Objects whose addresses may be known to somebody."""
        self.registered = False
        """Some step has registered a class with an abstract one, which shows nowhere."""
        self.finalizing = False
        """Some object has been seen that does something as it goes, and may be waiting to be collected."""
        self._looked: NameTable | None = None
        """What names had when all had been looked at."""
        self._dropped: set[Location] = set()
        """Names whose pictures were dropped since."""
        self._with_kin: set[Location] = set()
        self._showing: set[Location] = set()
        """Those that show memory which may be an array's."""
        self._boundless: set[Location] = set()

    def forget(self, locations: Iterable[Location] | None = None) -> None:
        """They may have changed; without locations, all of them."""
        if locations is None:
            self.left = None
            self._looked = None
            self._dropped.clear()
            self._with_kin.clear()
            self._pictures.clear()
            self._owners.clear()
            self._large.clear()
            self._showing.clear()
            self._boundless.clear()
            return
        for location in locations:
            self._drop(location)

    def variables(self) -> list[Location]:
        """From the oldest on. What was displayed last is the youngest, since every display replaces it."""
        names = [each for each in list(self.namespace) if type(each) is str and each not in _INTERNAL]
        if "_" in self.namespace:
            names.remove("_")
            names.append("_")
        return list(map(name, names))

    def bindings(self) -> NameTable:
        """Which object each name has."""
        return NameTable(self.namespace)

    @staticmethod
    def in_order(bindings: NameTable) -> list[Location]:
        """The names of the user's."""
        return [name(each) for each in bindings.names if type(each) is str and each not in _INTERNAL]

    @staticmethod
    def changed(after: NameTable, before: NameTable) -> set[Location]:
        """Names that are bound to another object in one of the two, or in one of them not at all."""
        return {name(each) for each in after.changed_since(before) if each not in _INTERNAL}

    def look_at_all(self, budget: InspectionBudget) -> NameTable:
        """Who shares what with whom can be said only of what has been looked at. Gives the bindings."""
        bindings, looked = self.bindings(), self._looked
        if looked is None:
            wanted = self.in_order(bindings)
        else:
            found = self.changed(bindings, looked) | self._dropped
            wanted = sorted(each for each in found if key_of(each) in self.namespace)
        for location in wanted:
            picture = self._pictures.get(location)
            if picture is None or picture.identity != id(self.namespace.get(key_of(location))):
                self.picture(location, budget)
        self._looked, self._dropped = bindings, set()
        self.look_at(self.modules(), budget)
        return bindings

    def look_at(self, locations: Iterable[Location], budget: InspectionBudget) -> None:
        for location in locations:
            self.picture(location, budget)

    def dying(self, locations: Iterable[Location]) -> set[Location]:
        """Of names that will be bound anew, those whose old value may do something as it goes."""
        known = [(each, self._pictures[each]) for each in locations if each in self._pictures]
        found = {each for each, picture in known if picture.restless or picture.finalizes}
        held = {each for each, picture in known if picture.kin} - found
        if held and any(picture.finalizes for picture in self._pictures.values()):
            found |= held
        if self.finalizing:  # what cannot be looked into may be the last to hold what does something
            found |= {each for each, picture in known if picture.opaque}
        return found

    def is_constant(self, location: Location) -> bool:
        known = self._pictures.get(location)
        return known is not None and known.constant

    def known_ones(self) -> dict[Location, Fingerprint]:
        """All pictures, for who wants to know later what they were."""
        return self._pictures.copy()

    def known(self, location: Location) -> Fingerprint | None:
        """The picture as it was taken last, however long ago."""
        return self._pictures.get(location)

    def picture(self, location: Location, budget: InspectionBudget) -> Fingerprint | None:
        """Of a name or of a module of the user's; None for what is not there."""
        found, value = self._value(location)
        if not found:
            self._drop(location)
            self._too_large.pop(location, None)
            return None
        known = self._pictures.get(location)
        if known is not None and known.identity == id(value):
            return known
        self._drop(location)
        if (verdict := self._too_large.get(location)) is not None and verdict.holds_for(value, budget):
            taken = replace(verdict.picture, version=fresh())
            self._enter(location, taken)
            return taken
        content = value if kind_of(location) == "name" else self._attributes(key_of(location))
        own = self.own_modules.found
        taken = fingerprint_of(content, value, self.namespace, own, self.handlers, self.untouched, budget)
        if content is not value:  # made for this look: what lies at its address later shares nothing with it
            held = {each: count for each, count in taken.holds.items() if each != id(content)}
            taken = replace(taken, holds=held)
        if taken.version in self._told:
            taken = replace(taken, version=self._told[taken.version])
        self.finalizing = self.finalizing or taken.finalizes
        self._too_large.pop(location, None)
        if taken.opaque == TOO_LARGE and taken.boundless and content is value:
            self._too_large[location] = _Verdict(taken, type(value), _size(value), budget.seconds)
        self._enter(location, taken)
        return taken

    def unseen(self, locations: Iterable[Location]) -> list[Location]:
        """Those in which something cannot be looked into, and of which nobody has said yet how it came about."""
        known = ((each, self._pictures.get(each)) for each in locations)
        return [
            each
            for each, held in known
            if held is not None
            and (held.version[:1] == UNSEEN or each in (DATABASES, RESULTS) or self.patches.is_unseen(each))
            and held.version not in self._origins
        ]

    def tell_by_origin(self, locations: Iterable[Location], origin: bytes) -> None:
        """Of those that `unseen` has given: their versions are made of this from now on, and not of what this process
        alone can know."""
        for location in sorted(locations):
            held = self._pictures[location]
            place = location.encode("utf-8", "surrogatepass")
            told = Version(f"{UNSEEN}{xxhash.xxh3_128_hexdigest(origin + place)}")
            if not held.opaque:  # it looks the same for as long as it is the same, under whatever name
                told = self._told.setdefault(held.version, told)
                self._origins.add(told)
                self._forget_origins()
            self._pictures[location] = replace(held, version=told)

    def _forget_origins(self) -> None:
        if len(self._told) > _TOLD:
            self._origins.discard(self._told.pop(next(iter(self._told))))

    def lend(self, location: Location, others: Set[Location], *, anew: bool) -> None:
        """What it has from now on may use these. anew: and nothing that it could use before."""
        before = frozenset[Location]() if anew else self._lent.get(location, frozenset())
        self._lent[location] = before | (others - {location})

    def lent_ones(self) -> dict[Location, Fingerprint]:
        """What was handed to others, with its latest picture."""
        lent = frozenset[Location]().union(*self._lent.values())
        return {each: self._pictures[each] for each in lent if each in self._pictures}

    def hand_on(self, location: Location, was: Fingerprint) -> None:
        """A name that was lent has another object now: what it had is lent under the other names that have of it."""
        heirs = self.holding(was.holds) - {location}
        for borrower in [borrower for borrower, lent in self._lent.items() if location in lent]:
            self._lent[borrower] |= heirs - {borrower}

    def kept_unseen(self) -> frozenset[Location]:
        """What was lent to those that are still there, and that may have the very objects without showing it."""
        return frozenset[Location]().union(
            *(lent for borrower, lent in self._lent.items() if lent and self._is_lent_to(borrower))
        )

    def _is_lent_to(self, borrower: Location) -> bool:
        picture = self._pictures.get(borrower)
        return picture is not None and (picture.blind or picture.calling or kind_of(borrower) == "module")

    def holding(self, identities: Iterable[int]) -> set[Location]:
        """Those that hold any of these objects, as by the latest pictures."""
        wanted = set(identities)
        found = {other for identity in self._owners.keys() & wanted for other in self._owners[identity]}
        return found | {other for other in self._large if not wanted.isdisjoint(self._pictures[other].holds)}

    def refers(self, location: Location, picture: Fingerprint) -> frozenset[Location]:
        """What its code may use, that which was lent to it included."""
        lent = self._lent.get(location)
        return picture.refers | lent if lent and self._is_lent_to(location) else picture.refers

    def nail(self, location: Location) -> bool:
        """The addresses of its objects may be known from now on. Whether there are any that can change."""
        picture = self._pictures.get(location)
        if picture is None or not picture.holds:
            return False
        self._nailed.update(picture.holds)
        return True

    def is_nailed(self, location: Location) -> bool:
        picture = self._pictures.get(location)
        return picture is not None and not self._nailed.isdisjoint(picture.holds)

    def with_code(self, locations: Iterable[Location]) -> set[Location]:
        """Those of them that have functions or classes of the user's."""
        known = ((each, self._pictures.get(each)) for each in locations)
        return {
            each
            for each, held in known
            if held and (held.kin or held.facts != NOTHING or callable(self.namespace.get(key_of(each))))
        }

    def kept_by_databases(self, locations: Iterable[Location]) -> set[Location]:
        """Those of which one of DuckDB may have something and not a copy of it: code, and objects of libraries."""
        known = ((each, self._pictures.get(each)) for each in locations)
        data = {each for each, held in known if held and (held.packages or held.opaque)}
        return data | self.with_code(locations)

    def reach(self, roots: Iterable[Location], budget: InspectionBudget) -> set[Location]:
        """The roots and all that they lead to. With ANYTHING in it, whatever there is."""
        reached, waiting = set[Location](), list(roots)
        while waiting:
            location = waiting.pop()
            if location in reached:
                continue
            reached.add(location)
            if location != ANYTHING and (found := self.picture(location, budget)) is not None:
                waiting.extend(self.refers(location, found) - reached)
        return reached

    def sharing(self, location: Location) -> set[Location]:
        """The other locations that hold an object of this one that can change, as by the latest pictures."""
        picture = self._pictures.get(location)
        if picture is None:
            return set()
        shown = self._shown_by(location, picture)
        if not picture.holds and not picture.covered:
            return shown
        found = set[Location]()
        for identity in self._owners.keys() & (picture.holds.keys() | picture.covered.keys()):
            found |= self._owners[identity]
        found |= self._large
        found.discard(location)
        return shown | {other for other in found if _share(picture, self._pictures[other])}

    def _may_share(self, location: Location, picture: Fingerprint) -> set[Location]:
        """Others that may hold objects of this one, of which not all have been met. A step that uses one of these
        says by itself that it may use anything."""
        if picture.constant:
            return set()
        if picture.boundless:
            return {other for other, held in self._pictures.items() if not held.constant} - {location}
        return self._boundless - {location}

    def covering_any(self, locations: Iterable[Location]) -> set[Location]:
        """Others that show what these show, and that whoever does not copy it first changes for all of them."""
        pictures = [picture for each in locations if (picture := self._pictures.get(each)) is not None]
        covered = {identity for picture in pictures for identity in picture.covered}
        return {other for identity in self._owners.keys() & covered for other in self._owners[identity]}

    def _shown_by(self, location: Location, picture: Fingerprint) -> set[Location]:
        """Those that show memory of this one, and those whose memory it shows."""
        pictures = self._pictures
        found = {other for other in self._showing if picture.owned and pictures[other].shows(picture)}
        if picture.shown:
            found |= {other for other, held in pictures.items() if held.owned and picture.shows(held)}
        return found - {location}

    def is_showing(self, location: Location) -> bool:
        """Whether it shows memory of another name's array."""
        picture = self._pictures.get(location)
        return picture is not None and bool(picture.shown) and bool(self._shown_by(location, picture))

    def sharing_any(self, locations: Iterable[Location]) -> set[Location]:
        found = set[Location]()
        for location in locations:
            found |= self.sharing(location)
        return found

    def version(self, location: Location, budget: InspectionBudget) -> Version:
        """Also says which objects it shares with names that are older."""
        picture = self.picture(location, budget)
        if picture is None:
            return ABSENT
        mates = self.sharing(location)
        if not mates:
            return picture.version
        alias = self._alias(location, picture, mates)
        return Version(f"{picture.version}+{alias}") if alias else picture.version

    def groups(self, locations: Iterable[Location]) -> tuple[frozenset[Location], ...]:
        """The given ones with all that can only be moved together with them."""
        groups, done = list[frozenset[Location]](), set[Location]()
        described = self._described()
        for location in locations:
            if location not in done:
                group = self._group(location, described)
                done |= group
                groups.append(frozenset(group))
        return tuple(groups)

    def _described(self) -> dict[str, list[Location]]:
        """By name of a function or class: whose pictures refer to it."""
        found = dict[str, list[Location]]()
        for location in self._with_kin:
            for variable in self._pictures[location].kin:
                found.setdefault(variable, []).append(location)
        return found

    def _group(self, location: Location, described: Mapping[str, list[Location]]) -> set[Location]:
        group, waiting = set[Location](), [location]
        while waiting:
            member = waiting.pop()
            if member in group:
                continue
            group.add(member)
            picture = self._pictures.get(member)
            if picture is not None:
                waiting.extend(self.sharing(member) | self._may_share(member, picture))
                waiting.extend(map(name, picture.kin))
            waiting.extend(described.get(key_of(member), ()))
        return group

    def described_by(self, locations: Iterable[Location]) -> dict[Location, set[Location]]:
        """By name: others whose pictures only refer to its function or class. Without those that have none."""
        wanted = {key_of(each): each for each in locations if each in self._pictures}
        described = self._described() if wanted else {}
        found = {each: set(described.get(variable, ())) - {each} for variable, each in wanted.items()}
        return {each: others for each, others in found.items() if others}

    def _alias(self, location: Location, picture: Fingerprint, mates: set[Location]) -> str:
        """Which of its objects are which of an older name's. The oldest name has them to itself."""
        older = list[tuple[str, int, int]]()
        for mate in self._elders(location, mates):
            other = self._pictures[mate]
            for identity in sorted(_shared(picture, other), key=lambda each: picture.holds.get(each, -1)):
                older.append((mate, other.holds.get(identity, -1), picture.holds.get(identity, -1)))
        return xxhash.xxh3_64_hexdigest(repr(older).encode()) if older else ""

    def _elders(self, location: Location, mates: set[Location]) -> list[Location]:
        """Modules go before names, and the first of them before the others."""
        elders = list[Location]()
        for older in self.modules() if any(kind_of(each) == "module" for each in mates) else ():
            if older == location:
                return elders
            if older in mates:
                elders.append(older)
        for variable in self.variables() if kind_of(location) == "name" else ():
            if variable == location:
                break
            if variable in mates:
                elders.append(variable)
        return elders

    def _value(self, location: Location) -> tuple[bool, object]:
        key = key_of(location)
        if kind_of(location) == "module":
            patched, _ = self.patches.found.get(key, (None, None))
            own = self.own_modules.found.get(key)
            return own is not None or patched is not None, own if own is not None else patched
        return key in self.namespace, self.namespace.get(key)

    def _attributes(self, dotted: str) -> dict[str, object]:
        own = self.own_modules.found.get(dotted)
        if own is None:
            return self.patches.values(dotted)
        table = {key: item for key, item in vars(own).items() if type(key) is str and key not in _OF_MODULES}
        return table if type(own) is ModuleType else {**table, "__class__": type(own)}

    def modules(self) -> list[Location]:
        """The user's own, and what was set on others."""
        return [*map(module, self.own_modules.found), *map(module, self.patches.found)]

    def _enter(self, location: Location, picture: Fingerprint) -> None:
        self._pictures[location] = picture
        if picture.kin:
            self._with_kin.add(location)
        if picture.shown:
            self._showing.add(location)
        if picture.boundless:
            self._boundless.add(location)
        if len(picture.holds) > _LARGE:
            self._large.add(location)
            return
        for identity in (*picture.holds, *picture.covered):
            self._owners.setdefault(identity, set()).add(location)

    def _drop(self, location: Location) -> None:
        picture = self._pictures.pop(location, None)
        if picture is None:
            return
        if kind_of(location) == "name":
            self._dropped.add(location)
        self._with_kin.discard(location)
        self._showing.discard(location)
        self._boundless.discard(location)
        if location in self._large:
            self._large.discard(location)
            return
        for identity in (*picture.holds, *picture.covered):
            owners = self._owners.get(identity)
            if owners is not None:
                owners.discard(location)
                if not owners:
                    del self._owners[identity]


def _shared(one: Fingerprint, other: Fingerprint) -> set[int]:
    """Memory that both only show, and copy before they write, is not shared."""
    return (
        (one.holds.keys() & other.holds.keys())
        | (one.holds.keys() & other.covered.keys())
        | (one.covered.keys() & other.holds.keys())
    )


def _share(one: Fingerprint, other: Fingerprint) -> bool:
    return not (
        one.holds.keys().isdisjoint(other.holds)
        and one.holds.keys().isdisjoint(other.covered)
        and one.covered.keys().isdisjoint(other.holds)
    )
