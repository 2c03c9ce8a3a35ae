"""The index that goes along with a state by value, and the comparison of a copy with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cenote_worker.in_jail.checkpointing_groups import NOT_STATE, Grouped
from cenote_worker.in_jail.copy_trial import CopyTrial, told_apart
from cenote_worker.in_jail.kernel import Kernel
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.state_index import OTHER_SHARING, Indexed, differences
from cenote_worker.trace import Location, Version, hidden, key_of, name
from cenote_worker.tracking.index import import_all, shared_with
from cenote_worker.tracking.tracker import Tracker

__builtins__ = BUILTINS

_ALWAYS_CARRIED: Final = frozenset(
    ("random", "numpy.random", "torch.random", "environ", "cwd", "sys.path", "warnings")
)
_NOT_CARRIED: Final = "it is not carried into a copy"
_SET_INSIDE: Final = "what steps have set in it is not carried into a copy"
_NOT_TRIED: Final = "the process could not be copied to try it"

Anchor = Callable[[str, str], object]


class StateIndexing:
    """One kernel's. To be made before the first cell."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._began_with: Mapping[Location, Version] = {}
        self._drawn: Mapping[Location, Indexed] = {}
        if (tracker := kernel.tracker) is not None:
            states = kernel.in_context(lambda: tracker.indexer().states())
            self._began_with = {each: indexed.version for each, indexed in states.items()}

    def before_copying(self) -> None:
        """In the live process: Python draws new random numbers in each copy of it."""
        if (tracker := self._kernel.tracker) is not None:
            self._drawn = tracker.indexer().drawn()

    def of_state(
        self, done: Grouped, names: Sequence[str], settings: Collection[str], anchor: Anchor, *, apart: bool
    ) -> list[Indexed]:
        """Of the state that was pickled. settings: states of the process that go along.

        apart: this process is a frozen copy that does nothing else, so that it can be tried what comes of the pickles.
        """
        tracker = self._kernel.tracker
        if tracker is None:
            return []
        try:
            return self._kernel.in_context(
                lambda: self._of_state(tracker, done, names, settings, anchor, apart=apart)
            )
        except Exception as error:  # a library that a cell has changed
            reason = f"looking at it failed: {type(error).__name__}"
            there = [each for group in done.groups for each in group.names]
            return [
                Indexed(location=name(each), version=Version(""), unseen=reason, untried=reason) for each in there
            ]

    def _of_state(
        self,
        tracker: Tracker,
        done: Grouped,
        names: Sequence[str],
        settings: Collection[str],
        anchor: Anchor,
        *,
        apart: bool,
    ) -> list[Indexed]:
        there = {each for group in done.groups for each in group.names}
        kept = [each for each in names if each in there]
        versions = tracker.versions(map(name, kept))
        indexer = tracker.indexer()
        found = {
            each: shared_with(indexed, versions[each]) for each, indexed in indexer.names(kept).items()
        }
        states = {**indexer.states(), **self._drawn}
        libraries = indexer.libraries(tracker.set_in_libraries())
        modules = indexer.own_modules()
        if apart:
            trial = CopyTrial(anchor)
            trial.carry_out(done.groups, kept)
            self._try(trial, tracker, found)
        else:
            found = {each: replace(indexed, untried=_NOT_TRIED) for each, indexed in found.items()}
        _foretell_sharing(tracker, done, found)
        return [
            *found.values(),
            *(self._foretold_state(each, settings) for each in states.values()),
            *(replace(each, foretold=_SET_INSIDE) for each in libraries.values()),
            *modules.values(),
        ]

    def _try(self, trial: CopyTrial, tracker: Tracker, found: dict[Location, Indexed]) -> None:
        """Puts in what a copy of each name turns out to be."""
        original = self._kernel.namespace
        copies = tracker.indexer(trial.namespace).names(map(key_of, found))
        for each, indexed in found.items():
            key = key_of(each)
            copy = copies.get(each)
            if copy is None:
                found[each] = replace(indexed, untried=trial.untried.get(key, ""))
            elif not (indexed.unseen or copy.unseen) and _content(indexed) != _content(copy):
                reason = told_apart(key, original[key], trial.namespace[key])
                found[each] = replace(indexed, foretold=reason)

    def _foretold_state(self, state: Indexed, settings: Collection[str]) -> Indexed:
        key = key_of(state.location)
        as_at_first = self._began_with.get(state.location) in (None, state.version)
        carried = key in _ALWAYS_CARRIED or key in settings
        return state if carried or as_at_first else replace(state, foretold=_NOT_CARRIED)

    def before_comparing(self, expected: Iterable[Indexed]) -> None:
        """Imports what `compared` looks at."""
        import_all(expected)

    def compared(self, expected: Iterable[Indexed], *, draws_anew: bool) -> tuple[str, ...]:
        """How the state that is here now, which is a copy, differs from the original, a line each. Never raises.

        draws_anew: other random numbers are meant to come.
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


_DRAWN: Final = frozenset(map(hidden, ("random", "numpy.random", "torch.random")))


def _foretell_sharing(tracker: Tracker, done: Grouped, found: dict[Location, Indexed]) -> None:
    """Names that share an object, and are not in one pickle, have one each in a copy."""
    group_of = {each: place for place, group in enumerate(done.groups) for each in group.names}
    for component in tracker.components():
        members = [each for each in component if each in group_of and each not in NOT_STATE]
        if len({group_of[each] for each in members}) < 2:
            continue
        for each in members:
            indexed = found.get(name(each))
            if indexed is not None and not indexed.foretold and "+" in indexed.version:
                found[name(each)] = replace(indexed, foretold=OTHER_SHARING)


def _content(indexed: Indexed) -> str:
    return indexed.version.partition("+")[0]
