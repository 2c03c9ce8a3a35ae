"""One step, from before it to after it: what it could reach, and what of that has changed."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Set
from decimal import getcontext
from types import CodeType, MappingProxyType
from typing import Final

from cenote_worker.execution.trace import (
    ABSENT,
    ADDRESS_KNOWN,
    ANYTHING,
    DATABASES,
    LIBRARIES,
    LOCKS,
    RESULTS,
    Location,
    StepTrace,
    Version,
    hidden,
    imported,
    inside,
    key_of,
    kind_of,
    module,
    name,
)
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.code import unbounded_effects
from cenote_worker.jail.tracking.code.binding_only_check import CodeReach, bound_only
from cenote_worker.jail.tracking.code.bytecode_effects import NOTHING, Facts, facts_of, facts_of_cell
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import packed
from cenote_worker.jail.tracking.descriptions.objects import code_digest
from cenote_worker.jail.tracking.files.file_watch import StepFileWatch, unseen_by
from cenote_worker.jail.tracking.files.workdir_files import SEVERAL_NAMES, WorkdirFiles
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.jail.tracking.libraries import duckdb_connections, sqlite_connections
from cenote_worker.jail.tracking.object_index import ObjectIndex
from cenote_worker.jail.tracking.process_state import ambient_state, event_loop_state, modules
from cenote_worker.jail.tracking.process_state.library_digest import library_of
from cenote_worker.jail.tracking.process_state.modules import OwnModules, imported_of, named_by
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MIN_SECONDS: Final = 0.06
SHARE: Final = 0.05
"""Limits for tracing one step: this long, or this share of its time. What does not fit in counts as changed."""

_PARTIAL: Final = "partial"
"""The name of the function in `functools`."""

_NAMES: Final = frozenset(("name", "names", "freq"))
"""Attributes that can be set even on an index."""

_now = time.perf_counter
_registrations = abc.get_cache_token


class StepTracer:
    """Made before the step; `end` gives its trace."""

    def __init__(
        self,
        album: ObjectIndex,
        files: WorkdirFiles,
        own_modules: OwnModules,
        *parts: CodeType | None,
        displays: bool,
    ) -> None:
        """parts: the code of the step, in order."""
        facts = facts_of_cell(*parts)
        self._album, self._own_modules, self._cell = album, own_modules, facts
        self._parts, self._displays = tuple(filter(None, parts)), displays
        self._others = unbounded_effects.others_at_work() or (
            event_loop_state.awaits(self._parts) and event_loop_state.is_waiting()
        )
        self._told = unbounded_effects.is_told()
        own_modules.refresh()
        album.handlers.look_around()
        if self._others:
            album.forget()
            album.untouched.forget()
        budget = InspectionBudget(MIN_SECONDS)
        self._bindings = self._after = album.look_at_all(budget)
        """Which object each name has, before the step and after it."""
        self._lent = album.lent_ones()
        self._roots = {name(each) for each in facts.loads | ({"_"} if displays else set())}
        self._roots |= album.patches.roots(facts.imports)
        self._roots |= {
            module(each) for each in imported_of(facts, own_modules.found) & own_modules.found.keys()
        }
        self._dying = album.dying(name(each) for each in facts.stores)
        sure = {name(each) for each in facts.first | ({"_"} - facts.loads)}
        before = album.reach(self._roots - sure | self._dying, budget)
        self._reached = before
        self._met = Met(album, before)
        if found := album.patches.further_roots(self._met.packages) - self._roots:
            self._roots |= found
            before |= album.reach(found, budget)
            self._met = Met(album, before)
        if "decimal" in self._met.packages and (found := album.holding((id(getcontext()),)) - before):
            self._roots |= found
            before |= album.reach(found, budget)
            self._met = Met(album, before)
        before |= self._look_inside(budget)
        if _NAMES & (facts | self._met.facts).sets:
            before |= album.covering_any(before)
        touched = before | album.sharing_any(before) | {name(each) for each in facts.stores}
        self._versions = {each: album.version(each, budget) for each in touched if each != ANYTHING}
        used = ambient_state.touched(self._met.packages, ())
        if facts.imports:  # their settings afterwards are not known yet
            used |= ambient_state.settings()
        left, album.left = album.left, None
        self._states = ambient_state.versions(used, left)
        self._libraries = album.patches.version
        self._left = False
        self._by_chance = False
        """Whether it may have asked DuckDB for a random number, as its queries are unknown."""
        self._facts = facts | self._met.facts
        """Of the cell, and of the user's code in its reach; after the step, of all that it has reached."""
        self._patchable = album.patches.before(self._facts, self._met, own_modules.found)
        self._files = StepFileWatch(
            files, album.namespace, self._facts, self._met.packages, budget, self._parts
        )
        self.bound_only: frozenset[str] | None = None
        """After the step: names that it has written, if it has certainly changed nothing else but files here."""
        self._registrations = _registrations()
        album.untouched.step()
        self._started = _now()

    def end(self, failure: str = "") -> StepTrace:
        """Called after the step. failure: why it did not finish; its effects until then stay."""
        budget = InspectionBudget(max(MIN_SECONDS, SHARE * (_now() - self._started)))
        self._album.untouched.step()
        self._own_modules.refresh()
        self._album.handlers.look_around()
        bound = self._bound()
        patches = self._album.patches
        everything, own = self._facts, self._own_modules.found
        self._lend(patches.after(self._patchable, everything, self._met, own), bound, budget)
        sqlite_connections.look_for_more(everything, self._met.packages | self._cell.imports)
        asked = self._ask_duckdb(everything)
        named = self._named() | (asked or set())
        self._roots |= named
        self._roots |= patches.roots(self._met.packages | self._cell.imports)
        if "_" not in self._cell.loads and name("_") not in bound:
            self._roots.discard(name("_"))  # nothing was displayed; the former value is not looked at
        kin = self._album.described_by(bound)
        self._look_again(bound.union(*kin.values()), budget)
        self._look_again_inside(bound, budget)
        for each in bound & self._lent.keys():
            self._album.hand_on(each, self._lent[each])
        facts = self._facts = self._cell | self._met.facts
        files_read, files_changed = self._files.end(facts, self._met.packages, budget, holds=self._met.holds)
        opaque = self._opaque(facts)
        reads, writes = self._compare(bound, failure, budget)
        reads |= {each: self._versions[each] for each in named}
        # An object that has a function or class that lost its name now holds all of it: as it was before.
        reads |= {each: self._versions[each] for each in kin}
        self._compare_states(facts, reads, writes)
        parts = self._compare_imports(facts, reads, writes)
        self._lend_blind(writes, bound)
        self._lend_to_duckdb(writes, bound, budget)
        if asked is None:
            reads[ANYTHING] = fresh()
        reads |= files_read
        writes |= files_changed
        if "id" in facts.loads and "id" not in self._album.namespace:
            self._nail_down(writes, bound, budget)
        if opaque:
            reads[ANYTHING] = writes[ANYTHING] = fresh()
        unrepeatable = self._unrepeatable(facts)
        if not (
            failure
            or unrepeatable
            or self._by_chance
            or ANYTHING in reads
            or "cenote_worker" in self._met.packages
        ):
            self._tell_by_origin(reads, writes, budget)
        groups = self._groups(reads, writes, budget)
        trace = StepTrace(
            reads=MappingProxyType(reads),
            writes=MappingProxyType(self._in_order(writes)),
            moved=self._moved(facts),
            mutated=frozenset(each for each in writes if kind_of(each) == "name" and each not in bound),
            groups=groups,
            modules=tuple(sorted(named_by(facts.imports, self._own_modules.new) | parts)),
            opaque=opaque,
            unrepeatable=unrepeatable,
            unseen=unseen_by(facts, self._met.packages),
            unportable=MappingProxyType(self._unportable(writes, groups, bound)),
        )
        reach = CodeReach(
            facts=facts,
            libraries=self._met.packages,
            tools=self._met.tools,
            only_here=self._files.only_here,
        )
        self.bound_only = bound_only(trace, reach, self._album.namespace)
        if opaque:
            self._album.forget()
        return trace

    def _look_inside(self, budget: InspectionBudget) -> set[Location]:
        """Looks at the libraries' own state that the step may use. Returns the locations of that, and what it leads
        to."""
        album, own = self._album, self._own_modules.found.keys()
        inner = {library_of(each) for each in self._cell.imports | self._met.facts.imports}
        found = set[Location]()
        while True:
            used = inner | {library_of(each) for each in self._met.packages}
            self._looks = album.libraries.before(used, own)
            new = {inside(each) for each in self._looks.insides} - self._roots
            if not new:
                return found
            self._roots |= new
            found |= album.reach(new, budget)
            self._met = self._met.and_also(Met(album, found))

    @property
    def libraries(self) -> frozenset[str]:
        """After the step: libraries that it has imported, or has had objects of."""
        return self._met.packages | {each.partition(".")[0] for each in self._facts.imports}

    @property
    def words(self) -> frozenset[str]:
        """After the step: names and attributes in its code, and in that of the user's functions in reach."""
        return self._facts.loads | self._facts.attributes

    # -- after the step --

    def _look_again_inside(self, bound: set[Location], budget: InspectionBudget) -> None:
        """Looks at the libraries' own state now. They hold the user's objects that are in it, and what its code
        names."""
        album, own = self._album, self._own_modules.found.keys()
        within = [facts_of(each) for part in self._parts for each in part.co_consts if type(each) is CodeType]
        inner = {each for facts in (*within, self._met.facts) for each in facts.imports}
        used = {library_of(each) for each in inner | self._met.packages}
        changes = album.libraries.after(self._looks, used, own)
        if not changes.looked:
            return
        album.patches.changed(changes)
        lent = set[Location]()
        for facts in map(facts_of, changes.codes):
            lent |= {name(each) for each in facts.loads | facts.stores}
        if changes.changed:
            lent |= album.holding(changes.held)
        if any(each.blind for each in changes.changed.values()):
            lent |= self._code(bound)
        for library in changes.changed:
            album.lend(inside(library), lent, anew=False)
        for dotted in changes.set_on:
            album.lend(module(dotted), self._code(bound), anew=False)
        self._roots |= {inside(each) for each in changes.looked}
        self._look_again({*self._roots, *map(module, changes.set_on), *map(module, changes.process)}, budget)

    def _named(self) -> set[Location]:
        """The user's names in pickles and other texts, which occur in no code."""
        found = self._files.noted.named
        names = {name(each) for home, each in found if home == "__main__"}
        return names | {module(home) for home, _ in found if home in self._album.own_modules.found}

    def _bound(self) -> set[Location]:
        """Names that are bound to another object than before, or no longer bound."""
        self._after = self._album.bindings()
        return self._album.changed(self._after, self._bindings)

    def _look_again(self, bound: set[Location], budget: InspectionBudget) -> None:
        """Takes new pictures of all that the step could reach, and of what shares with it, until nothing more is
        found."""
        album = self._album
        done, then = set[Location](), album.known_ones()
        stale = self._versions.keys() | bound
        while new := stale - done:
            for each in new - self._versions.keys():  # only now it is known to be reachable
                self._versions[each] = then[each].version if each in then else ABSENT
            album.forget(each for each in new if each in bound or self._may_be_another(each))
            done |= new
            reached = album.reach(self._roots, budget)
            self._met = self._met.and_also(Met(album, reached))
            self._reached = self._reached | reached
            reached = reached - {ANYTHING}
            album.look_at(done, budget)
            stale = done | reached | album.sharing_any(done | reached)

    def _lend(self, libraries: Set[str], bound: set[Location], budget: InspectionBudget) -> None:
        """Lends to libraries the user's code that the step has, and what that names."""
        if libraries:
            self._album.look_at(bound, budget)
            spoken_of = {name(each) for each in self._cell.loads}
            lent = self._code(bound) | (spoken_of & (self._names_reached() | bound))
            for library in libraries:
                self._album.lend(module(library), lent, anew=False)

    def _lend_blind(self, writes: Iterable[Location], bound: set[Location]) -> None:
        """Lends to objects that do not show their references all that the step that wrote them has, or all of its
        code."""
        hands_on = sqlite_connections.hands_on(self._facts)
        for each in list(writes):
            picture = self._album.known(each)
            if picture is None or kind_of(each) != "name":
                continue
            if picture.blind:
                self._album.lend(each, self._names_reached(), anew=each in bound)
            elif picture.calling:
                handed = self._names_reached() | bound if hands_on else self._code(bound)
                self._album.lend(each, handed, anew=each in bound)

    def _in_order(self, writes: dict[Location, Version]) -> dict[Location, Version]:
        """Names in the order of the namespace: some programs use it, and a patch restores it."""
        if len(writes) < 2:
            return writes
        names = self._after.names
        wanted = set(map(key_of, writes))
        place = {name(each): at for at, each in enumerate(names) if type(each) is str and each in wanted}
        return dict(sorted(writes.items(), key=lambda item: place.get(item[0], -1)))

    def _moved(self, facts: Facts) -> frozenset[Location]:
        """Names that were deleted and bound again. Other names now come before them, unless a patch runs the step
        without the others: so a name that the code deletes counts as well if it was the last before."""
        deleted, table = set(map(name, facts.deletes)), self._after
        if table.begins_with(self._bindings) and not deleted:
            return frozenset()
        before, after = (self._album.in_order(each) for each in (self._bindings, table))
        if after[: len(before)] == before and not deleted:
            return frozenset()
        there, known = set(after), set(before)
        stayed = [each for each in before if each in there]
        now, place = [each for each in after if each in known], 0
        for each in stayed:
            if now[place] == each and not deleted.issuperset(now[place:]):
                place += 1
        return frozenset(now[place:]) | (deleted & there - known)

    def _names_reached(self) -> set[Location]:
        return {each for each in self._reached if kind_of(each) == "name"}

    def _ask_duckdb(self, facts: Facts) -> set[Location] | None:
        """The user's names that DuckDB may have looked up; None for any."""
        libraries = self._met.packages | {each.partition(".")[0] for each in self._cell.imports}
        noted = self._files.noted
        if not duckdb_connections.is_met(libraries):
            return None if noted.scanned else set()
        if duckdb_connections.may_change(facts, libraries):
            duckdb_connections.changed()
            self._album.patches.changed_inside(duckdb_connections.HOME, DATABASES)
        if duckdb_connections.leaves_results(facts):
            self._album.patches.changed_inside(duckdb_connections.HOME, RESULTS)
            self._left = True
        if duckdb_connections.fetches(facts):
            self._roots.add(RESULTS)
        found = duckdb_connections.looked_up(facts)
        self._by_chance = found is None
        if noted.scanned:
            return None
        if not noted.surveyed and duckdb_connections.tells_of_looking():
            return set()
        return None if found is None else set(map(name, found))

    def _lend_to_duckdb(
        self, writes: dict[Location, Version], bound: set[Location], budget: InspectionBudget
    ) -> None:
        """Lends to DuckDB all that the step has. Remaining results keep their former lenders."""
        if self._left:
            self._album.forget((RESULTS,))
            writes[RESULTS] = self._album.version(RESULTS, budget)
        for each in (DATABASES, RESULTS):
            if each in writes:
                self._album.lend(
                    each, self._album.kept_by_databases(self._names_reached() | bound), anew=False
                )

    def _code(self, bound: set[Location]) -> set[Location]:
        """The user's code that the step has, and what that names."""
        lent = self._album.with_code(self._reached | bound) | {name(each) for each in self._cell.within}
        # It shows nothing of what it was given, and may be the only object that holds it.
        is_partial = _PARTIAL in self._cell.loads | self._cell.attributes
        return lent | self._names_reached() | bound if is_partial else lent

    def _nail_down(
        self, writes: dict[Location, Version], bound: set[Location], budget: InspectionBudget
    ) -> None:
        """Records that a program may keep the addresses of its objects, which therefore cannot be moved."""
        for each in sorted(bound | self._reached - {ANYTHING}):
            if kind_of(each) == "name" and self._album.nail(each):
                writes.setdefault(each, self._album.version(each, budget))

    def _may_be_another(self, location: Location) -> bool:
        """False for a constant, unless it was bound again: the second object may have the address of the first."""
        variable = key_of(location)
        stored = variable in self._cell.stores or variable in self._met.facts.stores
        return stored or kind_of(location) == "module" or not self._album.is_constant(location)

    def _compare(
        self, bound: set[Location], failure: str, budget: InspectionBudget
    ) -> tuple[dict[Location, Version], dict[Location, Version]]:
        reads, writes = dict[Location, Version](), dict[Location, Version]()
        # A step that failed may not have reached bindings that it always makes.
        sure = set[Location]() if failure else {name(each) for each in self._cell.first}
        for each, before in self._versions.items():
            after = self._album.version(each, budget)
            stored = key_of(each) in self._cell.stores
            if after != before or each in bound or (stored and each in sure):
                writes[each] = after
            if stored and each not in sure and each not in bound:
                reads[each] = before  # whether it was bound again is unknown
        for each in self._reached - {ANYTHING}:
            if (
                each in self._met.referred
                or each in self._dying
                or kind_of(each) == "module"
                or (key_of(each) in self._cell.loads and each not in sure)
            ):
                reads[each] = self._versions[each]
        return reads, writes

    def _compare_states(
        self, facts: Facts, reads: dict[Location, Version], writes: dict[Location, Version]
    ) -> None:
        libraries = self._met.packages | facts.imports
        touched = ambient_state.touched(libraries, facts.attributes | facts.loads)
        if facts.imports:
            touched |= ambient_state.settings() - self._states.keys()
        if self._files.noted.locks:
            touched.add(key_of(LOCKS))
        after = ambient_state.versions(touched)
        last = self._album.states | self._states
        self._album.states = last | after
        if fresh_ones := after.keys() - self._album.first_states.keys():
            self._album.first_states |= {each: self._states.get(each, after[each]) for each in fresh_ones}
        self._album.left = after
        for state, version in after.items():
            # For a state that is only now known to be used, all that is known is whether it was ever different.
            before = self._states.get(state, version if last.get(state) == version else ABSENT)
            if state in touched or before != version:
                reads[hidden(state)] = before
            if before != version or (state in touched and state in ambient_state.DRAWN):
                writes[hidden(state)] = version
        reads[LIBRARIES] = self._libraries
        if (set_now := self._album.patches.version) != self._libraries:
            writes[LIBRARIES] = set_now

    def _compare_imports(
        self, facts: Facts, reads: dict[Location, Version], writes: dict[Location, Version]
    ) -> set[str]:
        """Submodules of libraries: those that it looks up were imported before or were not, and those that it imports
        exist now in any case. Returns the ones that did not exist before."""
        new, own = self._own_modules.new, self._own_modules.found.keys()
        wanted = set(modules.spoken_of(facts, self._album.namespace, own)) - self._cell.submodules
        reads |= {imported(each): ABSENT if each in new else modules.version(each) for each in wanted}
        there = {each for each in (facts.submodules - own) | (wanted & new) if modules.version(each)}
        writes |= {imported(each): modules.IMPORTED for each in there}
        return there & new

    def _tell_by_origin(
        self, reads: dict[Location, Version], writes: dict[Location, Version], budget: InspectionBudget
    ) -> None:
        """Gives objects that cannot be inspected a version by origin: the same code makes the same from the same.

        Missing locations are left out: whether a module is looked for depends on what has been imported so far. If
        one run finds something and another one nothing, one of the two records that.
        """
        unseen = self._album.unseen(each for each in writes if kind_of(each) in ("name", "module"))
        if not unseen:
            return
        found = sorted(each for each in reads.items() if each[1] != ABSENT)
        told = (self._displays, [code_digest(part) for part in self._parts], found)
        self._album.tell_by_origin(unseen, packed(told))
        for each in unseen:
            writes[each] = self._album.version(each, budget)

    def _groups(
        self, reads: dict[Location, Version], writes: dict[Location, Version], budget: InspectionBudget
    ) -> tuple[frozenset[Location], ...]:
        """Groups of what was written. The other members count as read: they are restored together."""
        album = self._album
        groups = album.groups(each for each in writes if kind_of(each) in ("name", "module") and writes[each])
        for each in {member for group in groups for member in group} - writes.keys() - reads.keys():
            reads[each] = self._versions.get(each) or album.version(each, budget)
        return groups

    def _opaque(self, facts: Facts) -> tuple[str, ...]:
        album, libraries = self._album, self._met.packages
        if unbounded_effects.registers(facts, libraries) and _registrations() != self._registrations:
            album.registered = True
        noted = self._files.noted
        reasons = list(
            unbounded_effects.sees_everything(
                facts,
                libraries,
                album.namespace,
                registered=album.registered,
                pickles_known=unbounded_effects.is_known(noted.unpickled, self._own_modules.found),
            )
        )
        if ANYTHING in self._reached:
            reasons += sorted(self._met.unclear)
        if self._others or unbounded_effects.others_at_work():
            self._album.untouched.forget()
            reasons.append("other threads or tasks were at work")
        if self._told or unbounded_effects.is_told():
            reasons.append("a function is told of all that runs")
        if (
            self._album.finalizing
            and "collect" in facts.attributes
            and "gc" in self._met.packages | facts.imports
        ):
            reasons.append("it collects garbage, of which some does something as it goes")
        if noted.frames:
            reasons.append("it was handed a frame, and with it all names")
        reasons += sorted(f"it uses `{event}`" for event in noted.reflected)
        return tuple(dict.fromkeys(reasons))

    def _unrepeatable(self, facts: Facts) -> tuple[str, ...]:
        reasons = unbounded_effects.differs_each_time(facts, self._met.packages)
        if (
            sqlite_connections.CONNECTIONS.asked_for_chance()
            and unbounded_effects.ASKS_DATABASES_FOR_CHANCE not in reasons
        ):
            reasons = (*reasons, unbounded_effects.ASKS_DATABASES_FOR_CHANCE)
        logs = "logging" in self._met.packages | facts.imports and unbounded_effects.logs(facts)
        if logs and ambient_state.logs_lines():
            reasons = (*reasons, "it logs where code stands")
        return (*reasons, "it spoke to another process") if self._files.noted.remote else reasons

    def _unportable(
        self, writes: dict[Location, Version], groups: Iterable[frozenset[Location]], bound: set[Location]
    ) -> dict[Location, str]:
        known = [(each, self._album.known(each)) for each in writes]
        found = {each: picture.stays for each, picture in known if picture is not None and picture.stays}
        shown = {each: "it shows an array's memory" for each in writes if self._album.is_showing(each)}
        parts = {each for each, part in self._album.patches.parts().items() if part.is_plain}
        theirs = {
            each: "it is, or holds, a container that a library has"
            for each, picture in known
            if picture is not None and not picture.holds.keys().isdisjoint(parts)
        }
        if hidden("decimal") in writes and self._album.holding((id(getcontext()),)):
            theirs[hidden("decimal")] = "a name has the context"
        nailed = {each: ADDRESS_KNOWN for each in writes if self._album.is_nailed(each)}
        named = {each: "it has several names" for each in writes if SEVERAL_NAMES in writes[each]}
        return {**self._kept(writes, groups, bound), **nailed, **shown, **theirs, **found, **named}

    def _kept(
        self, writes: dict[Location, Version], groups: Iterable[frozenset[Location]], bound: set[Location]
    ) -> dict[Location, str]:
        """Objects that must keep their identity: a copy would not be the one that another object was given before."""
        if not (kept := self._album.kept_unseen() - bound):
            return {}
        tied = {each for group in groups if not kept.isdisjoint(group) for each in group}
        return dict.fromkeys(tied & writes.keys(), "something that does not show what it has may have it")


class Met:
    """The combined facts of the pictures of reached locations."""

    def __init__(self, album: ObjectIndex, reached: Iterable[Location]) -> None:
        self.facts, packages, tools = NOTHING, set[str](), set[str]()
        self.classes = dict[int, type]()
        self.of_libraries = set[int]()
        self.referred, self.unclear = set[Location](), set[str]()
        self.holds = False
        """Whether it holds something that is not fully known."""
        for each in reached:
            picture = album.known(each)
            if picture is not None:
                self.facts |= picture.facts
                packages |= picture.packages
                tools |= picture.tools
                self.holds = self.holds or picture.blind or bool(picture.opaque)
                self.classes.update(picture.classes)
                self.of_libraries |= picture.holds.keys() & album.patches.met.keys()
                self.referred |= (refers := album.refers(each, picture))
                if ANYTHING in refers:
                    self.unclear.add(f"{key_of(each)}: {picture.opaque}")
        self.packages = frozenset(packages | ambient_state.beneath(packages))
        self.tools = frozenset(tools)

    def and_also(self, other: Met) -> Met:
        self.facts |= other.facts
        self.packages |= other.packages
        self.tools |= other.tools
        self.classes |= other.classes
        self.of_libraries |= other.of_libraries
        self.referred |= other.referred
        self.unclear |= other.unclear
        self.holds = self.holds or other.holds
        return self
