"""Merges several variables from a branch into its source, with the objects that they share, and process states.

Functions among them look names up in the receiving namespace, as those of a copied state do.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.execution.state_index import differences, fill, from_message
from cenote_worker.execution.trace import ABSENT, hidden
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.state import ambient_transfer, branch_transfer
from cenote_worker.jail.state.pickles_unsafe import Anchors, Landing, NotKept, StateUnpickler
from cenote_worker.jail.state.set_layout import follow
from cenote_worker.jail.tracking import state_indexer
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_ANNOTATIONS = "__annotations__"


class NamesTogether:
    """The content of a pickle of several names. parts: of a parcel. modules: to be imported before it is opened.

    told: a State with the index of everything in it.
    """

    def __init__(self, parts: Sequence[memoryview], modules: Sequence[str], told: bytes) -> None:
        self.parts = parts
        self.modules = modules
        self.told = told

    def __reduce__(self) -> tuple[object, ...]:
        buffers = [pickle.PickleBuffer(part) for part in self.parts]
        return type(self), (buffers, self.modules, self.told)


class BranchMerge:
    """For one kernel's common namespace. User code runs on both sides, as for any value."""

    def __init__(
        self, kernel: Kernel, anchors: Callable[[], Anchors], landing: Callable[[], Landing]
    ) -> None:
        self._kernel = kernel
        self._anchors = anchors
        self._landing = landing

    def packed(self, names: Sequence[str], states: Iterable[str]) -> NamesTogether:
        """Raises KeyError for a missing name, NotKept, and any pickling error."""
        namespace = self._kernel.namespace
        values = {each: namespace[each] for each in names}
        taken = self._kernel.in_context(lambda: _taken(states))
        content = branch_transfer.packed(set(names), taken, namespace, self._anchors(), self._kernel.sources)
        parts = content.unpack()
        content.close()
        return NamesTogether(parts, _modules_of(values), self._told(names, states))

    def _told(self, names: Sequence[str], states: Iterable[str]) -> bytes:
        told = checkpoint_pb2.State()
        tracker = self._kernel.tracker
        if tracker is not None:
            wanted = set(map(hidden, states))
            entries = tracker.indexer().names(names)
            entries |= {
                each: state
                for each, state in self._kernel.in_context(state_indexer.states).items()
                if each in wanted
            }
            for each in entries.values():
                fill(told.index.add(), state_indexer.shared_with(each, ABSENT))
        return told.SerializeToString()

    def bind(self, merged: NamesTogether) -> tuple[str, ...]:
        """Binds the values; returns what differs from the namespace that they come from, a line each.

        Raises NotKept, and any error from rebuilding: nothing has changed then.
        """
        for module in merged.modules:
            with suppress(Exception):  # a value that needs it says so
                importlib.import_module(module)
        sources, *stream = merged.parts
        self._take_sources(memoryview(sources))
        parcel = StateUnpickler([memoryview(part) for part in stream], self._landing())
        values, states = parcel.repaired({"set": follow})
        self._kernel.in_context(lambda: ambient_transfer.put_states(states))
        namespace = self._kernel.namespace
        if _ANNOTATIONS in values and type(namespace.get(_ANNOTATIONS)) is dict:
            values[_ANNOTATIONS] = {**namespace[_ANNOTATIONS], **values[_ANNOTATIONS]}  # type: ignore[dict-item]
        gone = [namespace.get(each) for each in values]  # releasing an old value may run code
        namespace.update(values)
        del gone
        return self._compared(merged.told)

    def _take_sources(self, told: memoryview) -> None:
        sources = branch_transfer.sources_in(told)
        new = sources.keys() - self._kernel.sources.keys()
        self._kernel.take_sources({each: sources[each] for each in new})

    def _compared(self, told: bytes) -> tuple[str, ...]:
        tracker = self._kernel.tracker
        if tracker is None:
            return ()
        expected = [
            each
            for each in map(from_message, checkpoint_pb2.State.FromString(told).index)
            if each.spoken != _ANNOTATIONS
        ]
        tracker.forget()
        found = self._kernel.in_context(lambda: tracker.index_of_copy(expected))
        bare = {each: state_indexer.shared_with(one, ABSENT) for each, one in found.items()}
        return differences(expected, bare, ordered=False)


def _taken(states: Iterable[str]) -> dict[str, object]:
    """The states that can be carried; the receiver finds the others missing."""
    found = dict[str, object]()
    for each in states:
        with suppress(NotKept):
            found |= ambient_transfer.take_states((each,))
    return found


def _modules_of(values: Mapping[str, object]) -> list[str]:
    """The modules among the values, with their imported submodules."""
    modules = {id(each): dotted for dotted, each in list(sys.modules.items()) if type(dotted) is str}
    named = [modules[id(value)] for value in values.values() if id(value) in modules]
    below = [each for each in list(sys.modules) if any(str(each).startswith(f"{top}.") for top in named)]
    return [*named, *below]
