"""Which libraries a step has changed inside, by a look at each before and after the step.

Most steps use only libraries that are known to have no state: these are not looked at. A look after one step serves
as the one before the next, so a step pays for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from types import CodeType

from cenote_worker.jail.tracking.process_state.library_digest import (
    MOST,
    WITH_REGISTRIES,
    Index,
    Inside,
    is_standard,
    keeps_something,
    look,
    may_come,
    of_the_process,
    tables_of,
)
from cenote_worker.jail.tracking.process_state.library_state import KEEPING_CACHES
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Tables = Mapping[str, tuple[object, int]]
"""See `tables_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """insides: of the libraries that the step may use, and of those that these use. tables: of other libraries that
    these refer to. process: see `of_the_process`."""

    insides: Mapping[str, Inside] = field(default_factory=dict)
    tables: Mapping[str, Tables] = field(default_factory=dict)
    process: Mapping[str, object] = field(default_factory=dict)


NO_LOOKS = Looks()
_TOO_FAR = Inside(digest=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChanges:
    """looked: libraries that the step may have used. changed: those whose state has changed, with the new state.
    set_on: modules and classes of others with other attributes, by dotted names. process: the modules whose C state
    has changed.
    """

    looked: Set[str] = frozenset()
    changed: Mapping[str, Inside] = field(default_factory=dict)
    set_on: Mapping[str, object] = field(default_factory=dict)
    process: Set[str] = frozenset()

    @property
    def codes(self) -> list[CodeType]:
        """Code of the user's functions that the changed libraries hold."""
        return [code for inside in self.changed.values() for code in inside.codes]

    @property
    def held(self) -> Set[int]:
        """The ids of objects that the changed libraries hold."""
        return frozenset[int]().union(*(inside.held for inside in self.changed.values()))


NO_CHANGES = LibraryChanges()


class LibraryState:
    """The state of libraries in one process."""

    def __init__(self, is_collecting: Callable[[], bool]) -> None:
        """is_collecting: whether the user's program has the garbage collector on."""
        self._is_collecting = is_collecting
        self._index = Index()
        self._insides: dict[str, tuple[int, Inside]] = {}
        """By library: how many modules it had, and what was seen then."""
        self._tables: dict[str, tuple[int, Tables]] = {}

    def before(self, used: Set[str], own_modules: Set[str]) -> Looks:
        """used: libraries that a step may use, as far as is known before it runs."""
        libraries = {each for each in used if keeps_something(each, own_modules)}
        comes_new = any(may_come(each) for each in used)
        if not libraries and not comes_new:
            return NO_LOOKS
        self._index.refresh()
        insides = self._all_used(libraries, own_modules, self._inside_by_now)
        others = self._index.libraries() if comes_new else self._beside(insides)
        tables = {each: self._tables_by_now(each) for each in _that_keep_nothing(others)}
        return Looks(insides=insides, tables=tables, process=of_the_process(self._is_collecting()))

    def after(self, before: Looks, used: Set[str], own_modules: Set[str]) -> LibraryChanges:
        """used: libraries that the step has used."""
        libraries = {each for each in used if keeps_something(each, own_modules)}
        if not libraries:
            return NO_CHANGES
        self._index.refresh()
        known = {each: inside for each, (_, inside) in self._insides.items()}
        insides = self._all_used(libraries, own_modules, self._inside_anew)
        changed = {
            each: now
            for each, now in insides.items()
            if _is_changed(each, before.insides.get(each, known.get(each)), now)
        }
        process = of_the_process(self._is_collecting())
        return LibraryChanges(
            looked=insides.keys(),
            changed=changed,
            set_on=self._set_on(before, insides),
            process={each for each, state in process.items() if before.process.get(each, state) != state},
        )

    def _all_used(
        self, libraries: Set[str], own_modules: Set[str], inside_of: Callable[[str], Inside]
    ) -> dict[str, Inside]:
        """Adds the libraries that they use, and so on, but not what the standard library itself uses. The total limit
        is that of one library: the others are unknown."""
        found, waiting, met = dict[str, Inside](), sorted(libraries), 0
        for library in waiting:  # which grows: the nearest come first
            if library in found:
                continue
            found[library] = inside_of(library) if met < MOST else _TOO_FAR
            met += len(found[library].held)
            if not is_standard(library):
                beside = (each for each in found[library].beside if keeps_something(each, own_modules))
                waiting += sorted(each for each in beside if not is_standard(each) or each in WITH_REGISTRIES)
        return found

    def _beside(self, insides: Mapping[str, Inside]) -> frozenset[str]:
        told = (inside.beside for library, inside in insides.items() if not is_standard(library))
        return frozenset[str]().union(*told)

    def _inside_by_now(self, library: str) -> Inside:
        """Late imports are no change: after one there is another look."""
        count, inside = self._insides.get(library, (-1, None))
        if inside is None or count != len(self._index.of(library)):
            return self._inside_anew(library)
        return inside

    def _inside_anew(self, library: str) -> Inside:
        inside = look(library, self._index)
        kept = replace(inside, held=frozenset(), codes=())
        self._insides[library] = len(self._index.of(library)), kept
        return inside

    def _tables_by_now(self, library: str) -> Tables:
        count, tables = self._tables.get(library, (-1, None))
        if tables is None or count != len(self._index.of(library)):
            return self._tables_anew(library)
        return tables

    def _tables_anew(self, library: str) -> Tables:
        tables = tables_of(library, self._index)
        self._tables[library] = len(self._index.of(library)), tables
        return tables

    def _set_on(self, before: Looks, insides: Mapping[str, Inside]) -> dict[str, object]:
        found = dict[str, object]()
        for library in _that_keep_nothing(self._beside(insides)) & before.tables.keys():
            was = before.tables[library]
            for dotted, (target, digest) in self._tables_anew(library).items():
                if dotted in was and was[dotted] != (target, digest):
                    found[dotted] = target
        return found


def _that_keep_nothing(libraries: Set[str]) -> set[str]:
    return {each for each in KEEPING_CACHES & libraries if each not in ("builtins", "cenote_worker", "")}


def _is_changed(library: str, was: Inside | None, now: Inside) -> bool:
    """Unknown counts as changed. But modules of the standard library are as their import has left them, and their
    hidden parts are handled elsewhere."""
    if is_standard(library):
        return was is not None and not was.blind and not now.blind and was.digest != now.digest
    return was is None or was.blind or now.blind or was.digest != now.digest
