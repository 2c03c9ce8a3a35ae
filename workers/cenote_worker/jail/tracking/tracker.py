"""Tracks the steps of one namespace: what each read and wrote, with versions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import CodeType
from typing import Final

from cenote_worker.execution.state_index import Indexed
from cenote_worker.execution.trace import ABSENT, LIBRARIES, Location, Version, file, key_of, kind_of, name
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.files.workdir_files import FolderChanges, WorkdirFiles
from cenote_worker.jail.tracking.fingerprint import Fingerprint, fresh
from cenote_worker.jail.tracking.object_index import ObjectIndex
from cenote_worker.jail.tracking.process_state import ambient_state, modules
from cenote_worker.jail.tracking.process_state.modules import OwnModules
from cenote_worker.jail.tracking.process_state.monkeypatches import Monkeypatches
from cenote_worker.jail.tracking.state_indexer import StateIndexer, index_of_copy
from cenote_worker.jail.tracking.step_tracer import MIN_SECONDS, StepTracer
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_ANSWER_SECONDS: Final = 10 * MIN_SECONDS
"""For a query that no step waits for."""


class Tracker:
    """One per namespace. Calls come from the thread that runs the steps, one after the other."""

    def __init__(
        self,
        namespace: dict[str, object],
        workdir: str,
        *,
        joining: bool = False,
        is_collecting: Callable[[], bool] = gc.isenabled,
        changes: FolderChanges | None = None,
    ) -> None:
        """joining: steps have run already, so that existing modules may be the user's own. is_collecting: see
        `LibraryState`. changes: see `WorkdirFiles`."""
        self._namespace = namespace
        self._own_modules = OwnModules(joining=joining)
        self._album = ObjectIndex(namespace, self._own_modules, is_collecting=is_collecting)
        self._files = WorkdirFiles(workdir, changes)

    def learn(self, parts: Iterable[tuple[memoryview, bytes]]) -> None:
        """Restored memory, part by part, with its XXH3-128 digest when restored. Never raises."""
        self._album.untouched.learn(parts)

    def before_fork(self) -> None:
        """See `KnownDigests`. Never raises."""
        with suppress(Exception, MemoryError):
            self._album.untouched.before_fork()

    @property
    def wants_copy(self) -> bool:
        """Whether a copy of this process costs less than steps would pay without it. See `KnownDigests`."""
        return self._album.untouched.is_pending

    def look_ahead(self) -> None:
        """Inspects in advance what the next step would, as far as that may cost a step. Changes no results."""
        self._refresh()
        self._album.look_at_all(InspectionBudget(MIN_SECONDS))

    def begin(self, *parts: CodeType | None, displays: bool = False) -> StepTracer:
        """Called when a step is about to run this code. displays: the value of its last part becomes `_` and is
        shown."""
        return StepTracer(self._album, self._files, self._own_modules, *parts, displays=displays)

    def versions(self, locations: Iterable[Location]) -> dict[Location, Version]:
        """Current versions. Two versions are equal only if the content is."""
        self._refresh()
        wanted, budget = list(locations), InspectionBudget(_ANSWER_SECONDS)
        self._album.look_at_all(budget)  # a version also depends on sharing with other names
        states = ambient_state.versions([key_of(each) for each in wanted if kind_of(each) == "hidden"])
        return {each: self._version(each, states, budget) for each in wanted}

    def components(self, names: Iterable[str] | None = None) -> tuple[frozenset[str], ...]:
        """These names, or all, in groups that share mutable objects; other names of a group are added."""
        self._refresh()
        album, budget = self._album, InspectionBudget(_ANSWER_SECONDS)
        album.look_at_all(budget)
        wanted = album.variables() if names is None else [name(each) for each in names]
        groups = album.groups(wanted)
        return tuple(frozenset(key_of(each) for each in group if kind_of(each) == "name") for group in groups)

    @property
    def own_modules(self) -> frozenset[str]:
        """Dotted names of the user's modules that are imported."""
        self._own_modules.refresh()
        return frozenset(self._own_modules.found)

    def indexer(self, namespace: dict[str, object] | None = None) -> StateIndexer:
        """The indexer of the state, or of a copy of it in another namespace of this process."""
        return StateIndexer(self._namespace if namespace is None else namespace, self._own_modules)

    def temporary_files(self) -> dict[Location, Indexed]:
        """Entries directly below temporary folders: not in the working directory, and in no kept state."""
        found = self._files.temporary_entries()
        return {file(path): Indexed(location=file(path), version=version) for path, version in found.items()}

    @property
    def first_states(self) -> Mapping[str, Version]:
        """Hidden state when a step first used it."""
        return self._album.first_states

    def pictures(self) -> dict[Location, Fingerprint]:
        """The valid pictures: of values that cannot have changed since the last look."""
        return self._album.known_ones()

    def index_of_copy(self, expected: Sequence[Indexed]) -> dict[Location, Indexed]:
        """The entries of this state, which is a copy, for the expected ones."""
        wanted = {each.location for each in expected if kind_of(each.location) == "file"}
        files = (
            {each: found for each, found in self.temporary_files().items() if each in wanted}
            if wanted
            else {}
        )
        return index_of_copy(self._namespace, self._own_modules, expected) | files

    def set_in_libraries(self) -> dict[str, tuple[object, frozenset[str], bool]]:
        """See `StateIndexer.libraries`."""
        return self._album.patches.noted()

    def parts_of_libraries(self) -> dict[int, str]:
        """By id, objects of libraries that steps have named: as `part_of_library` takes them."""
        return {each: f"{part.dotted}:{part.key}" for each, part in self._album.patches.parts().items()}

    def part_of_library(self, told: str) -> object:
        """Raises KeyError, and ImportError."""
        dotted, _, key = told.partition(":")
        return self._album.patches.meet(dotted, key)

    @property
    def patches(self) -> Monkeypatches:
        """What was set in libraries."""
        return self._album.patches

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Called when something other than a step has run: an injection, another author's cell. names: all that it
        affected."""
        self.look_anew()
        self._album.untouched.step()
        self._album.forget(None if names is None else map(name, names))
        self._files.may_be_open = True

    def look_anew(self) -> None:
        """Called when user code may have run outside a step, as when values are pickled, which binds no names."""
        self._album.left = None

    def _refresh(self) -> None:
        self._own_modules.refresh()
        self._album.handlers.look_around()

    def _version(self, location: Location, states: dict[str, Version], budget: InspectionBudget) -> Version:
        if location == LIBRARIES:
            return self._album.patches.version
        match kind_of(location):
            case "name" | "module":
                return self._album.version(location, budget)
            case "import":
                return modules.version(key_of(location))
            case "hidden":
                return states.get(key_of(location), ABSENT)
            case "file":
                return self._files.version(key_of(location), budget)
        return fresh()
