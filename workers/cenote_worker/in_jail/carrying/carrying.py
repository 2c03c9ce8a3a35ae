"""Brings parts of a former state into the live one, and takes parts away from it.

A former state is a frozen copy of this process. A fork of it, made for that one question, pickles what is asked for;
here it is unpickled and bound. That runs code of the user's on both sides, which can do no more than a cell.
"""

from __future__ import annotations

import importlib
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.carrying import hidden_states, parcels
from cenote_worker.in_jail.carrying.set_recipes import follow
from cenote_worker.in_jail.checkpointing import Checkpointing
from cenote_worker.in_jail.checkpointing_unsafe import NotKept, StateUnpickler
from cenote_worker.in_jail.kernel import Kernel
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.kept_files import KeptFiles
from cenote_worker.trace import TREE, Location, Version, key_of, kind_of
from cenote_worker.tracking import hidden

__builtins__ = BUILTINS

Borrow = Callable[[int], socket.socket | None]
"""See `Copies.borrow`."""

_REASON_CHARS = 300


class Carrying:
    """One kernel's. Locations are those of the common namespace."""

    def __init__(
        self, kernel: Kernel, checkpointing: Checkpointing, workdir: str, kept_files: KeptFiles
    ) -> None:
        self._kernel = kernel
        self._namespace = kernel.namespace
        self._checkpointing = checkpointing
        self._workdir = Path(workdir)
        self._kept_files = kept_files

    def versions(self, locations: Iterable[Location]) -> dict[Location, Version]:
        """Of the live state. Raises NotKept when nobody watches it."""
        tracker = self._kernel.tracker
        if tracker is None:
            raise NotKept("nothing is watched in this runtime")
        return self._kernel.in_context(lambda: tracker.versions(locations))

    # -- from a former state --

    def carry(self, step: int, locations: Sequence[Location], borrow: Borrow) -> None:
        """Brings these over. Raises NotKept, and what rebuilding the values raises: nothing has changed then, but for
        files, of which some may be what they are to be.
        """
        names = _keys(locations, "name")
        self._check(locations)
        if paths := _keys(locations, "file"):
            self._bring_files(step, paths, borrow)
            return
        with self._kernel.interruptible():
            values, states = self._fetched(step, self._wanted(names, locations), borrow)
        self._kernel.in_context(lambda: hidden_states.put(states))
        # Held until all are bound: an old value that goes may run code.
        gone = [self._namespace.pop(name) for name in names if name in self._namespace]
        self._namespace.update(values)
        del gone

    def _check(self, locations: Sequence[Location]) -> None:
        kinds = set(map(kind_of, locations))
        if not kinds <= {"name", "hidden", "file"}:
            raise NotKept("attributes of modules cannot be carried")
        if "file" in kinds and len(kinds) > 1:
            raise NotKept("files come over by themselves")
        if TREE in locations:
            raise NotKept("there are too many files to tell which")
        if any(path.startswith("/") for path in _keys(locations, "file")):
            raise NotKept("only files of the working directory are kept")

    def _bring_files(self, step: int, paths: Sequence[str], borrow: Borrow) -> None:
        """Out of the version of the working directory that goes with that state."""
        with self._kernel.interruptible(), self._ordered(step, jail_pb2.Wanted(files=True), borrow) as line:
            number = parcels.told_files(line, step)
        if reason := self._kept_files.bring(number, paths):
            raise NotKept(reason)
        with suppress(Exception):  # finders may be the user's
            self._kernel.in_context(importlib.invalidate_caches)

    def _wanted(self, names: list[str], locations: Sequence[Location]) -> jail_pb2.Wanted:
        states = _keys(locations, "hidden")
        present = self._kernel.in_context(lambda: hidden.versions(states))
        wanted = make(jail_pb2.Wanted, names=names)
        for state in states:
            make(wanted.states.add, location=state, version=present.get(state, ""))
        return wanted

    def _fetched(
        self, step: int, wanted: jail_pb2.Wanted, borrow: Borrow
    ) -> tuple[dict[str, object], dict[str, object]]:
        with self._ordered(step, wanted, borrow) as line:
            sources, parts = parcels.received(line, step)
        self._kernel.take_sources(
            {each: sources[each] for each in sources.keys() - self._kernel.sources.keys()}
        )
        parcel = StateUnpickler(parts, self._checkpointing.landing())
        values, states = parcel.repaired({"set": follow})
        return values, states

    @contextmanager
    def _ordered(self, step: int, wanted: jail_pb2.Wanted, borrow: Borrow) -> Iterator[socket.socket]:
        """The line on which it will come. Raises NotKept."""
        line = borrow(step)
        if line is None:
            raise NotKept("this runtime keeps no former states")
        with line:
            with suppress(BrokenPipeError, ConnectionResetError):  # why, is found out by who waits for it
                parcels.order(line, wanted)
            yield line

    def give(self, line: socket.socket, files: int | None = None) -> None:
        """In a fork of a frozen copy: hands over what is asked for at the other end.

        files: the version of the working directory that goes with this state; None where who asks has another one.
        """
        with suppress(BrokenPipeError, ConnectionResetError):  # nobody wants it any more
            wanted = parcels.ordered(line)
            if wanted is None:
                return
            if wanted.files:
                if files is None:
                    parcels.refuse(line, "files are not lent to another jail")
                else:
                    parcels.tell_files(line, files)
                return
            try:
                content = self._packed(wanted)
            except Exception as error:
                parcels.refuse(line, _reason(error))
            else:
                parcels.hand_over(line, content)

    def _packed(self, wanted: jail_pb2.Wanted) -> Content:
        there = {seen.location: seen.version for seen in wanted.states}
        here = self._kernel.in_context(lambda: hidden.versions(there))
        differing = [state for state, version in there.items() if here.get(state, "") != version]
        states = self._kernel.in_context(lambda: hidden_states.take(differing))
        return parcels.packed(
            set(wanted.names), states, self._namespace, self._checkpointing.anchors(), self._kernel.sources
        )

    # -- without one --

    def forget(self, locations: Sequence[Location]) -> None:
        """Removes names and files; of anything else there is nothing to remove."""
        gone = [self._namespace.pop(name, None) for name in _keys(locations, "name")]
        del gone
        for path in _keys(locations, "file"):
            if path != ".":
                _remove(self._workdir / path)

    def arrange(self, locations: Sequence[Location]) -> None:
        """Puts names into this order. Each other one stays behind the name that it stands behind."""
        first: list[str] = []
        followers = {each: [each] for each in _keys(locations, "name") if each in self._namespace}
        last = first
        for name in self._namespace:
            if name in followers:
                last = followers[name]
            else:
                last.append(name)
        wanted = [*first, *(name for names in followers.values() for name in names)]
        if wanted == list(self._namespace):
            return
        values = [(name, self._namespace[name]) for name in wanted]
        for name, value in values:  # none is gone for longer than a moment, and none is let go
            del self._namespace[name]
            self._namespace[name] = value

    def load(self, modules: Iterable[str]) -> None:
        """Imports them, but for those that cannot be imported."""
        with self._kernel.interruptible():
            for module in modules:
                with suppress(Exception):
                    self._kernel.in_context(partial(importlib.import_module, module))


def _keys(locations: Iterable[Location], kind: str) -> list[str]:
    return [key_of(location) for location in locations if kind_of(location) == kind]


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _reason(error: Exception) -> str:
    text = bounded_str(error, _REASON_CHARS)
    return text if isinstance(error, NotKept) else f"{type(error).__name__}: {text}"
