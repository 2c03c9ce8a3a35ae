"""Fingerprints ("pictures") of all names: references, shared objects, and the version of each.

A picture is valid until something could have changed its object: the next step that can reach it, or a request from
outside.
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
"""Objects in one picture from which on they are not entered among the owners individually."""

_INTERNAL: Final = frozenset(
    ("__builtins__", "__warningregistry__", "__name__", "__doc__", "__package__", "__loader__", "__spec__")
)
"""Names that every namespace has."""

_OF_MODULES: Final = (_INTERNAL - {"__doc__"}) | {"__cached__", "__file__", "__path__"}
"""Names that every module has; other names that begin like these may have been set, and may provide the rest."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A value has too many objects to look at, so it may hold any object.

    size: of the container that it is, 0 for others. seconds: the budget of the look.
    """

    picture: Fingerprint
    type: type
    size: int
    seconds: float

    def holds_for(self, value: object, budget: InspectionBudget) -> bool:
        """Valid until the name has another value, or this one is much smaller, or the budget is much larger."""
        return (
            self.picture.identity == id(value)
            and self.type is type(value)
            and 2 * _size(value) >= self.size
            and budget.seconds <= 2 * self.seconds
        )


def _size(value: object) -> int:
    return len(value) if type(value) in (list, dict, set, deque) else 0  # type: ignore[arg-type]


class ObjectIndex:
    """The index of one namespace."""

    def __init__(
        self,
        namespace: dict[str, object],
        own_modules: OwnModules,
        untouched: KnownDigests | None = None,
        is_collecting: Callable[[], bool] = gc.isenabled,
    ) -> None:
        """untouched: knows memory that need not be read. is_collecting: see `LibraryState`."""
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
        """Values that are not looked at again: finding out that they are too large would cost each step its whole
        budget."""
        self._lent: dict[Location, frozenset[Location]] = {}
        """Objects that were passed to libraries and to objects that do not show their references."""
        self.states: dict[str, Version] = {}
        """Hidden state at the last look, however long ago."""
        self.first_states: dict[str, Version] = {}
        """Hidden state at the first look."""
        self.left: dict[str, Version] | None = None
        """Hidden state after the latest step; None once something else may have run since."""
        self._told: dict[Version, Version] = {}
        """Versions by origin, by versions that are valid in this process only."""
        self._origins = set[Version]()
        self._nailed: set[int] = set()
        """Objects whose addresses a program may know."""
        self.registered = False
        """Some step has registered a class with an abstract one, which shows nowhere."""
        self.finalizing = False
        """Some object has been seen that runs code when it is released, and may be waiting to be collected."""
        self._looked: NameTable | None = None
        """The bindings when all names had been looked at."""
        self._dropped: set[Location] = set()
        """Names whose pictures were dropped since."""
        self._with_kin: set[Location] = set()
        self._showing: set[Location] = set()
        """Names that show memory which may be an array's."""
        self._boundless: set[Location] = set()
        self._mates: dict[Location, frozenset[Location]] = {}
        """What `sharing` has found since a picture was taken or dropped."""

    def forget(self, locations: Iterable[Location] | None = None) -> None:
        """Drops pictures that may be outdated; without locations, all of them."""
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
            self._mates.clear()
            return
        for location in locations:
            self._drop(location)

    def variables(self) -> list[Location]:
        """The variables, oldest first. The last displayed value is the newest, since every display replaces it."""
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
        """The user's names."""
        return [name(each) for each in bindings.names if type(each) is str and each not in _INTERNAL]

    @staticmethod
    def changed(after: NameTable, before: NameTable) -> set[Location]:
        """Names that are bound to different objects in the two, or in only one of them."""
        return {name(each) for each in after.changed_since(before) if each not in _INTERNAL}

    def look_at_all(self, budget: InspectionBudget) -> NameTable:
        """Looks at all names, since sharing is known only between names that were looked at. Returns the bindings."""
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
        """Of names that will be bound anew, those whose old value may run code when it is released."""
        known = [(each, self._pictures[each]) for each in locations if each in self._pictures]
        found = {each for each, picture in known if picture.restless or picture.finalizes}
        held = {each for each, picture in known if picture.kin} - found
        if held and any(picture.finalizes for picture in self._pictures.values()):
            found |= held
        if self.finalizing:  # what cannot be inspected may be the last to hold such an object
            found |= {each for each, picture in known if picture.opaque}
        return found

    def is_constant(self, location: Location) -> bool:
        known = self._pictures.get(location)
        return known is not None and known.constant

    def known_ones(self) -> dict[Location, Fingerprint]:
        """A copy of all pictures, to look up later what they were."""
        return self._pictures.copy()

    def known(self, location: Location) -> Fingerprint | None:
        """The picture as it was last taken, however long ago."""
        return self._pictures.get(location)

    def picture(self, location: Location, budget: InspectionBudget) -> Fingerprint | None:
        """The picture of a name or of a module of the user's; None for what does not exist."""
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
        if content is not value:  # made for this look: a later object at its address shares nothing with it
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
        """Those with parts that cannot be inspected, and whose origin is not recorded yet."""
        known = ((each, self._pictures.get(each)) for each in locations)
        return [
            each
            for each, held in known
            if held is not None
            and (held.version[:1] == UNSEEN or each in (DATABASES, RESULTS) or self.patches.is_unseen(each))
            and held.version not in self._origins
        ]

    def tell_by_origin(self, locations: Iterable[Location], origin: bytes) -> None:
        """Makes the versions of locations that `unseen` has given from their origin, and not from what is known in
        this process only."""
        for location in sorted(locations):
            held = self._pictures[location]
            place = location.encode("utf-8", "surrogatepass")
            told = Version(f"{UNSEEN}{xxhash.xxh3_128_hexdigest(origin + place)}")
            if not held.opaque:  # it looks the same while it is the same, under any name
                told = self._told.setdefault(held.version, told)
                self._origins.add(told)
                self._forget_origins()
            self._pictures[location] = replace(held, version=told)

    def _forget_origins(self) -> None:
        if len(self._told) > _TOLD:
            self._origins.discard(self._told.pop(next(iter(self._told))))

    def lend(self, location: Location, others: Set[Location], *, anew: bool) -> None:
        """Records that its new value may use these. anew: and nothing that it could use before."""
        before = frozenset[Location]() if anew else self._lent.get(location, frozenset())
        self._lent[location] = before | (others - {location})

    def lent_ones(self) -> dict[Location, Fingerprint]:
        """Objects that were passed to others, with their latest pictures."""
        lent = frozenset[Location]().union(*self._lent.values())
        return {each: self._pictures[each] for each in lent if each in self._pictures}

    def hand_on(self, location: Location, was: Fingerprint) -> None:
        """A lent name has another object now: its former object is lent under the other names that hold parts of
        it."""
        heirs = self.holding(was.holds) - {location}
        for borrower in [borrower for borrower, lent in self._lent.items() if location in lent]:
            self._lent[borrower] |= heirs - {borrower}

    def kept_unseen(self) -> frozenset[Location]:
        """What was lent to objects that still exist, and that may hold it without showing it."""
        return frozenset[Location]().union(
            *(lent for borrower, lent in self._lent.items() if lent and self._is_lent_to(borrower))
        )

    def _is_lent_to(self, borrower: Location) -> bool:
        picture = self._pictures.get(borrower)
        return picture is not None and (picture.blind or picture.calling or kind_of(borrower) == "module")

    def holding(self, identities: Iterable[int]) -> set[Location]:
        """Names that hold any of these objects, according to the latest pictures."""
        wanted = set(identities)
        found = {other for identity in self._owners.keys() & wanted for other in self._owners[identity]}
        return found | {
            other for other in self._large if not self._pictures[other].holds.keys().isdisjoint(wanted)
        }

    def refers(self, location: Location, picture: Fingerprint) -> frozenset[Location]:
        """What its code may use, including what was lent to it."""
        lent = self._lent.get(location)
        return picture.refers | lent if lent and self._is_lent_to(location) else picture.refers

    def nail(self, location: Location) -> bool:
        """Records that the addresses of its objects may be known. Returns whether any of them can change."""
        picture = self._pictures.get(location)
        if picture is None or not picture.holds:
            return False
        self._nailed.update(picture.holds)
        return True

    def is_nailed(self, location: Location) -> bool:
        picture = self._pictures.get(location)
        return picture is not None and not picture.holds.keys().isdisjoint(self._nailed)

    def with_code(self, locations: Iterable[Location]) -> set[Location]:
        """Those of them that have functions or classes of the user's."""
        known = ((each, self._pictures.get(each)) for each in locations)
        return {
            each
            for each, held in known
            if held and (held.kin or held.facts != NOTHING or callable(self.namespace.get(key_of(each))))
        }

    def kept_by_databases(self, locations: Iterable[Location]) -> set[Location]:
        """Those of which a DuckDB connection may hold the object and not a copy: code, and objects of libraries."""
        known = ((each, self._pictures.get(each)) for each in locations)
        data = {each for each, held in known if held and (held.packages or held.opaque)}
        return data | self.with_code(locations)

    def reach(self, roots: Iterable[Location], budget: InspectionBudget) -> set[Location]:
        """The roots and everything they lead to. If it contains ANYTHING, that is every object."""
        reached, waiting = set[Location](), list(roots)
        while waiting:
            location = waiting.pop()
            if location in reached:
                continue
            reached.add(location)
            if location != ANYTHING and (found := self.picture(location, budget)) is not None:
                waiting.extend(self.refers(location, found) - reached)
        return reached

    def sharing(self, location: Location) -> frozenset[Location]:
        """The other locations that hold a mutable object of this one, according to the latest pictures."""
        known = self._mates.get(location)
        if known is None:
            known = self._mates[location] = frozenset(self._find_mates(location))
        return known

    def _find_mates(self, location: Location) -> set[Location]:
        picture = self._pictures.get(location)
        if picture is None:
            return set()
        shown = self._shown_by(location, picture)
        if not picture.holds and not picture.covered:
            return shown
        found = set[Location]()
        for held in (picture.holds, picture.covered):  # not both at once: one may have many thousands
            for identity in self._owners.keys() & held.keys():
                found |= self._owners[identity]
        found |= self._large
        found.discard(location)
        return shown | {other for other in found if _share(picture, self._pictures[other])}

    def _may_share(self, location: Location, picture: Fingerprint) -> set[Location]:
        """Other names that may hold objects of this one, if not all objects were looked at. A step that uses one of
        these already reports that it may use anything."""
        if picture.constant:
            return set()
        if picture.boundless:
            return {other for other, held in self._pictures.items() if not held.constant} - {location}
        return self._boundless - {location}

    def covering_any(self, locations: Iterable[Location]) -> set[Location]:
        """Other names that show memory of these names, and that a write without a prior copy would change."""
        pictures = [picture for each in locations if (picture := self._pictures.get(each)) is not None]
        covered = {identity for picture in pictures for identity in picture.covered}
        return {other for identity in self._owners.keys() & covered for other in self._owners[identity]}

    def _shown_by(self, location: Location, picture: Fingerprint) -> set[Location]:
        """Names that show memory of this one, and those whose memory it shows."""
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
        """The version, which also depends on the objects that it shares with older names."""
        picture = self.picture(location, budget)
        if picture is None:
            return ABSENT
        mates = self.sharing(location)
        if not mates:
            return picture.version
        alias = self._alias(location, picture, mates)
        return Version(f"{picture.version}+{alias}") if alias else picture.version

    def groups(self, locations: Iterable[Location]) -> tuple[frozenset[Location], ...]:
        """Each given location with all that can only be moved together with it."""
        groups, done = list[frozenset[Location]](), set[Location]()
        described = self._described()
        for location in locations:
            if location not in done:
                group = self._group(location, described)
                done |= group
                groups.append(frozenset(group))
        return tuple(groups)

    def _described(self) -> dict[str, list[Location]]:
        """By name of a function or class: locations whose pictures refer to it."""
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
        """By name: others whose pictures only refer to its function or class. Without names that have none."""
        wanted = {key_of(each): each for each in locations if each in self._pictures}
        described = self._described() if wanted else {}
        found = {each: set(described.get(variable, ())) - {each} for variable, each in wanted.items()}
        return {each: others for each, others in found.items() if others}

    def _alias(self, location: Location, picture: Fingerprint, mates: Set[Location]) -> str:
        """Which of its objects belong to which older name. The oldest name shows no sharing."""
        older = list[tuple[str, int, int]]()
        for mate in self._elders(location, mates):
            other = self._pictures[mate]
            for identity in sorted(_shared(picture, other), key=lambda each: picture.holds.get(each, -1)):
                older.append((mate, other.holds.get(identity, -1), picture.holds.get(identity, -1)))
        return xxhash.xxh3_64_hexdigest(repr(older).encode()) if older else ""

    def _elders(self, location: Location, mates: Set[Location]) -> list[Location]:
        """Modules go before names, and are in order themselves."""
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
        kind, _, key = location.partition(":")
        if kind == "module":
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
        """The user's own modules, and modules on which something was set."""
        return [*map(module, self.own_modules.found), *map(module, self.patches.found)]

    def _enter(self, location: Location, picture: Fingerprint) -> None:
        self._pictures[location] = picture
        self._mates.clear()
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
        self._mates.clear()
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
    # Of two views the smaller one is gone through; of a mapping all keys would be.
    return not (
        one.holds.keys().isdisjoint(other.holds.keys())
        and one.holds.keys().isdisjoint(other.covered.keys())
        and one.covered.keys().isdisjoint(other.holds.keys())
    )
