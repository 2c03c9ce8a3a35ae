"""The index that accompanies a state by value, and the comparison of a copy with it."""

from __future__ import annotations

import decimal
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.execution.state_index import OTHER_SHARING, Indexed, differences, fill, from_message
from cenote_worker.execution.trace import Location, Version, hidden, key_of, name
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.state.copy_trial import CopyTrial, is_hollow, staying_inside, told_apart
from cenote_worker.jail.state.variable_groups import PickledGroup, VariableGroups
from cenote_worker.jail.tracking import state_indexer
from cenote_worker.jail.tracking.budget import TOO_LARGE
from cenote_worker.jail.tracking.fingerprint import Fingerprint
from cenote_worker.jail.tracking.state_indexer import StateIndexer
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_ALWAYS_CARRIED: Final = frozenset(
    ("random", "numpy.random", "torch.random", "environ", "cwd", "sys.path", "warnings")
)
_NOT_CARRIED: Final = "it is not carried into a copy"
_SET_INSIDE: Final = "what steps have set in it is not carried into a copy"
_OUTSIDE: Final = "files outside the working directory are not carried into a copy"
_NOT_TRIED: Final = "the process could not be copied to try it"
_TOKEN: Final = 16

Anchor = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledNames:
    """A state in transfer. names: of all variables, in order. carried: states of the process and locations that are
    transferred besides the pickles.
    """

    done: VariableGroups
    names: Sequence[str]
    carried: Collection[str]


class StateIndexing:
    """One kernel's. Make it before the first cell."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._began_with: Mapping[Location, Version] = {}
        self._drawn: Mapping[Location, Indexed] = {}
        self._known = _KnownEntries()
        if kernel.tracker is not None:
            states = kernel.in_context(state_indexer.states)
            self._began_with = {each: indexed.version for each, indexed in states.items()}

    # -- of a state that is copied --

    def before_copying(self) -> None:
        """Called in the live process: Python draws new random numbers in each copy of it."""
        if (tracker := self._kernel.tracker) is not None:
            self._drawn = state_indexer.drawn()
            self._known.begin(tracker.pictures())

    def of_state(self, pickled: PickledNames, anchor: Anchor, *, apart: bool) -> list[Indexed]:
        """Never raises. apart: this process is a frozen copy that does nothing else, so that the pickles can be
        tried.
        """
        tracker = self._kernel.tracker
        if tracker is None:
            return []
        try:
            return self._kernel.in_context(lambda: self._of_state(tracker, pickled, anchor, apart=apart))
        except Exception as error:  # a library that a cell has changed
            reason = f"looking at it failed: {type(error).__name__}"
            there = [each for group in pickled.done.groups for each in group.names]
            return [
                Indexed(location=name(each), version=Version(""), unseen=reason, untried=reason)
                for each in there
            ]

    def _of_state(
        self, tracker: Tracker, pickled: PickledNames, anchor: Anchor, *, apart: bool
    ) -> list[Indexed]:
        groups = pickled.done.groups
        there = {each for group in groups for each in group.names}
        kept = [each for each in pickled.names if each in there]
        versions = tracker.versions(map(name, kept))
        pictures = tracker.pictures()
        known = self._known.still(pictures)
        indexer = tracker.indexer()
        states = {**state_indexer.states(), **self._drawn}
        libraries, modules = indexer.libraries(tracker.set_in_libraries()), indexer.own_modules()
        new = [group for group in groups if not known.keys() >= set(map(name, group.names))]
        with staying_inside() if apart else nullcontext():
            found = self._tried(tracker, indexer, new, kept, anchor, apart=apart)
        if apart:
            self._known.tell(found, pictures)
        found = {
            each: state_indexer.shared_with(found.get(each) or known[each], versions[each])
            for each in map(name, kept)
        }
        _foretell_sharing(tracker, pickled.done, found)
        return [
            *found.values(),
            *(self._foretold_state(each, tracker, pickled.carried) for each in states.values()),
            *(
                each if each.location in pickled.carried else replace(each, foretold=_SET_INSIDE)
                for each in libraries.values()
            ),
            *modules.values(),
            *(
                each if each.location in pickled.carried else replace(each, foretold=_OUTSIDE)
                for each in tracker.temporary_files().values()
            ),
        ]

    def _tried(
        self,
        tracker: Tracker,
        indexer: StateIndexer,
        groups: Sequence[PickledGroup],
        order: Sequence[str],
        anchor: Anchor,
        *,
        apart: bool,
    ) -> dict[Location, Indexed]:
        """The names of these groups, with what a copy of each would be."""
        names = {each for group in groups for each in group.names}
        found = indexer.names(each for each in order if each in names)
        if not apart:
            return {each: replace(indexed, untried=_NOT_TRIED) for each, indexed in found.items()}
        groups = [
            group
            for group in groups
            if any(name(each) in found and found[name(each)].unseen != TOO_LARGE for each in group.names)
        ]
        done = self._compared_with(CopyTrial(anchor, hollow=True), tracker, indexer, groups, found)
        # Code that looked at large memory which was left out has found other content there.
        again = [
            group
            for group in groups
            if is_hollow(group)
            and any(done[name(each)].foretold for each in group.names if name(each) in done)
        ]
        if again:
            trial = CopyTrial(anchor, hollow=False)
            of_them = {name(each) for group in again for each in group.names}
            wanted = {each: indexed for each, indexed in found.items() if each in of_them}
            done |= self._compared_with(trial, tracker, indexer, again, wanted)
        return done

    def _compared_with(
        self,
        trial: CopyTrial,
        tracker: Tracker,
        indexer: StateIndexer,
        groups: Sequence[PickledGroup],
        found: Mapping[Location, Indexed],
    ) -> dict[Location, Indexed]:
        """found: the originals of these groups, in their order."""
        done = dict(found)
        trial.carry_out(groups, list(map(key_of, found)))
        copied = tracker.indexer(trial.namespace)
        copies = copied.names(map(key_of, found))
        others = {each: indexer.objects((each,)) - copied.objects((each,)) for each in copies}
        doubtful = frozenset[int]().union(*others.values())
        theirs = _objects_of_libraries(doubtful, tracker) if doubtful else {}
        for each, indexed in found.items():
            key = key_of(each)
            copy = copies.get(each)
            if copy is None:
                done[each] = replace(indexed, untried=trial.untried.get(key, ""))
            elif not (indexed.unseen or copy.unseen) and indexed.content != copy.content:
                reason = told_apart(key, self._kernel.namespace[key], trial.namespace[key])
                done[each] = replace(indexed, foretold=reason)
            elif lost := {theirs[held] for held in others[each] & theirs.keys()}:
                done[each] = replace(
                    indexed, foretold=f"it is, or holds, {min(lost)}; a copy has one of its own"
                )
        return done

    def _foretold_state(self, each: Indexed, tracker: Tracker, carried: Collection[str]) -> Indexed:
        """The state is as in any process, except for what steps have set."""
        key = key_of(each.location)
        first = self._began_with.get(each.location) or tracker.first_states.get(key, each.version)
        if key in _ALWAYS_CARRIED or key in carried or first == each.version:
            return each
        return replace(each, foretold=_NOT_CARRIED)

    # -- of a copy --

    def before_comparing(self, expected: Iterable[Indexed]) -> None:
        """Imports the modules that `compared` looks at."""
        state_indexer.import_all(expected)

    def compared(self, expected: Iterable[Indexed], *, draws_anew: bool) -> tuple[str, ...]:
        """How the current state, a copy, differs from the original, a line each. Never raises.

        draws_anew: other random numbers are intended.
        """
        tracker = self._kernel.tracker
        if tracker is None:
            return ()
        there = [each for each in expected if not (draws_anew and each.location in _DRAWN)]
        try:
            found = self._kernel.in_context(lambda: tracker.index_of_copy(there))
        except Exception as error:  # a library that a cell has changed
            return (f"the copy could not be compared with the original: {type(error).__name__}",)
        return differences(there, found)


class _KnownEntries:
    """Results of frozen copies, by name: valid as long as the picture of the name is the same.

    A copy loses its memory at its end, so it writes its results into shared memory. A process that continues from a
    snapshot may find there the results of another one's copy: then the token differs.
    """

    def __init__(self) -> None:
        self._entries: dict[Location, tuple[Fingerprint, Indexed]] = {}
        self._asked: Mapping[Location, Fingerprint] = {}
        self._memory = -1
        self._token = b""

    def begin(self, pictures: Mapping[Location, Fingerprint]) -> None:
        """Called in the live process, before it is copied. pictures: of its current values."""
        with suppress(
            Exception
        ):  # a cell has closed it, or removed what this uses: then all is found out anew
            self._hear()
        self._entries = {each: held for each, held in self._entries.items() if pictures.get(each) is held[0]}
        self._asked, self._token = pictures, os.urandom(_TOKEN)
        self._memory = -1
        with suppress(OSError):
            self._memory = os.memfd_create("cenote-index")

    def _hear(self) -> None:
        memory, self._memory = self._memory, -1
        if memory < 0:
            return
        try:
            told = os.pread(memory, os.fstat(memory).st_size, 0)
        finally:
            os.close(memory)
        if told[:_TOKEN] != self._token:
            return
        for each in map(from_message, checkpoint_pb2.State.FromString(told[_TOKEN:]).index):
            self._entries[each.location] = self._asked[each.location], each

    def still(self, pictures: Mapping[Location, Fingerprint]) -> dict[Location, Indexed]:
        return {
            each: indexed
            for each, (picture, indexed) in self._entries.items()
            if pictures.get(each) is picture
        }

    def tell(self, found: Mapping[Location, Indexed], pictures: Mapping[Location, Fingerprint]) -> None:
        """Called in a copy. pictures: of the values that it has looked at."""
        if self._memory < 0:
            return
        state = checkpoint_pb2.State()
        for each, indexed in found.items():
            if each in pictures and self._asked.get(each) is pictures[each] and not indexed.untried:
                fill(state.index.add(), indexed)
        os.pwrite(self._memory, self._token + state.SerializeToString(), 0)


_OF_THE_USER: Final = frozenset(("__main__", "__mp_main__"))
_DRAWN: Final = frozenset(map(hidden, state_indexer.DRAWN))


def _foretell_sharing(tracker: Tracker, done: VariableGroups, found: dict[Location, Indexed]) -> None:
    """Names that share an object, and are not in one pickle, get separate objects in a copy."""
    group_of = {each: place for place, group in enumerate(done.groups) for each in group.names}
    for component in tracker.components():
        members = [each for each in component if each in group_of]
        if len({group_of[each] for each in members}) < 2:
            continue
        for each in map(name, members):
            if not found[each].foretold and "+" in found[each].version:
                found[each] = replace(found[each], foretold=OTHER_SHARING)


def _objects_of_libraries(wanted: Collection[int], tracker: Tracker) -> dict[int, str]:
    """Of these objects, by id, those that a module of a library owns, with their names."""
    own = tracker.own_modules
    found = {id(decimal.getcontext()): "decimal.getcontext()"}  # which is in no table of a module
    for dotted, module in list(sys.modules.items()):
        table = getattr(module, "__dict__", None)
        if type(dotted) is not str or dotted in own or dotted in _OF_THE_USER:
            continue
        for key, value in list(table.items()) if type(table) is dict else ():
            if id(value) in wanted and not dotted.startswith("cenote_worker"):
                found.setdefault(id(value), f"{dotted}.{key}")
    return found
