"""Brings parts of a former state into the live one, and removes parts from it.

A former state is a frozen copy of this process. A fork of it, made for one request, pickles the requested values;
this process unpickles and binds them. That runs user code on both sides, which can do no more than a cell. Both are
in the jail: no process outside trusts either.
"""

from __future__ import annotations

import importlib
import select
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.trace import TREE, Location, Version, key_of, kind_of
from cenote_worker.jail import plain_json
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.libraries.pandas_indexes import places
from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.jail.snapshots.workdir_snapshots import WorkdirSnapshots
from cenote_worker.jail.state import ambient_transfer
from cenote_worker.jail.state.checkpointing import Checkpointing
from cenote_worker.jail.state.pickles_unsafe import Anchors, NotKept, StateUnpickler, pickled
from cenote_worker.jail.state.set_layout import follow, recipes_for
from cenote_worker.jail.tracking.process_state import ambient_state
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import receive_packet, send_packet

__builtins__ = BUILTINS

Sources = Mapping[str, tuple[str, list[int]]]
"""See CellCompiler."""

PATIENCE: Final = 60.0
"""Seconds. A fork that hangs on a lock of a thread that was not copied is abandoned after that."""

_OWNED: Final = 4 * 2**20
"""Bytes of arrays that are transferred into memory of their own (a program can see that), which takes some
milliseconds."""


def order(line: socket.socket, wanted: jail_pb2.Wanted) -> None:
    """Requests a parcel. Raises OSError."""
    payload, descriptors = jail_pb2.Payload(), list[int]()
    content = Content.pack([wanted.SerializeToString()])
    content.to_wire(payload, descriptors)
    send_packet(line, payload.SerializeToString(), descriptors)
    content.close()


def ordered(line: socket.socket) -> jail_pb2.Wanted | None:
    """The requested parts; None when the requester has gone."""
    packet = receive_packet(line)
    if packet is None:
        return None
    content = Content.delivered(jail_pb2.Payload.FromString(packet.data), packet.descriptors)
    wanted = jail_pb2.Wanted.FromString(content.only_part())
    content.close()
    return wanted


def hand_over(line: socket.socket, content: Content) -> None:
    """Raises OSError when the requester has gone."""
    given, descriptors = jail_pb2.Given(), list[int]()
    content.to_wire(given.content, descriptors)
    send_packet(line, given.SerializeToString(), descriptors)
    content.close()


def tell_files(line: socket.socket, number: int) -> None:
    """number: of a version of the working directory. Raises OSError when the requester has gone."""
    send_packet(line, jail_pb2.Given(files=number).SerializeToString())


def refuse(line: socket.socket, reason: str) -> None:
    """Raises OSError when the requester has gone."""
    send_packet(line, make(jail_pb2.Given, refused=reason).SerializeToString())


def received(line: socket.socket, step: int) -> tuple[Sources, list[memoryview]]:
    """Cell sources, and the other parts of a parcel, in private pages.

    Raises NotKept with the reason when there is none.
    """
    given, descriptors = _answer(line, step)
    if given.WhichOneof("body") != "content":
        raise NotKept(given.refused)
    content = Content.delivered(given.content, descriptors)
    parts = content.unpack()
    content.close()
    return sources_in(parts[0]), parts[1:]


def sources_in(part: memoryview) -> Sources:
    """Cell sources, in the first part of a parcel."""
    found: Sources = plain_json.loads(bytes(part))
    return found


def told_files(line: socket.socket, step: int) -> int:
    """The number that `tell_files` sent. Raises NotKept with the reason if there is none."""
    given, _ = _answer(line, step)
    if given.WhichOneof("body") != "files":
        raise NotKept(given.refused)
    return given.files


def _answer(line: socket.socket, step: int) -> tuple[jail_pb2.Given, list[int]]:
    """Raises NotKept."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    if not poll.poll(PATIENCE * 1000):
        raise NotKept(f"the copy of the state after step {step} did not give it away in {PATIENCE:g} s")
    packet = None
    with suppress(ConnectionResetError):  # the order was not even read
        packet = receive_packet(line)
    if packet is None:
        raise NotKept(f"no copy of the state after step {step} is kept, or none that could give it away")
    return jail_pb2.Given.FromString(packet.data), packet.descriptors


def packed(
    names: Collection[str],
    states: Mapping[str, object],
    namespace: Mapping[str, object],
    anchors: Anchors,
    sources: Sources,
) -> Content:
    """One pickle of `({name: value}, {state: value})`, names in the order of the namespace, with recipes for its sets
    among its repairs; see `set_recipes`.

    Before it come the sources of the cells that define its functions: tracebacks show their lines.

    Raises NotKept, and any error that pickling the values raises.
    """
    values = {name: value for name, value in namespace.items() if name in names}
    parts, met = pickled(
        (values, states),
        namespace,
        anchors,
        owned=_OWNED,
        axes=places(names, namespace),
        more=lambda met: [("set", *each) for each in recipes_for(met)],
    )
    if id(namespace) in met:
        raise NotKept("it holds the namespace itself, as globals() gives it")
    for name, value in namespace.items():
        if name not in names and id(value) in met.keys() - anchors.keys() and _is_of_the_user(value):
            # A second object would be made, unknown to code that goes on using the name.
            raise NotKept(f"it holds `{name}`, which does not come along")
    files = {each.co_filename for _, each in met.values() if type(each) is CodeType} & sources.keys()
    told = plain_json.dumps({each: sources[each] for each in sorted(files)}).encode()
    return Content.pack([told, *parts])


def _is_of_the_user(value: object) -> bool:
    """Whether it is pickled by value, and not by name."""
    if not isinstance(value, type | FunctionType):
        return False
    return value.__module__ == "__main__" or value.__module__ not in sys.modules


Borrow = Callable[[int], socket.socket | None]
"""See `Snapshots.borrow`."""

_REASON_CHARS = 300


class BranchTransfer:
    """One kernel's transfers. Locations are those of the common namespace."""

    def __init__(
        self, kernel: Kernel, checkpointing: Checkpointing, workdir: str, kept_files: WorkdirSnapshots
    ) -> None:
        self._kernel = kernel
        self._namespace = kernel.namespace
        self._checkpointing = checkpointing
        self._workdir = Path(workdir)
        self._kept_files = kept_files

    def versions(self, locations: Iterable[Location]) -> dict[Location, Version]:
        """The versions in the live state. Raises NotKept when the runtime has no tracker."""
        tracker = self._kernel.tracker
        if tracker is None:
            raise NotKept("nothing is watched in this runtime")
        return self._kernel.in_context(lambda: tracker.versions(locations))

    # -- from a former state --

    def carry(self, step: int, locations: Sequence[Location], borrow: Borrow) -> None:
        """Brings these locations over. Raises NotKept, and any error from rebuilding the values. On error nothing has
        changed but files, some of which may have been brought over.
        """
        names = _keys(locations, "name")
        self._check(locations)
        if paths := _keys(locations, "file"):
            self._bring_files(step, paths, borrow)
            return
        with self._kernel.interruptible():
            values, states = self._fetched(step, self._wanted(names, locations), borrow)
        self._kernel.in_context(lambda: ambient_transfer.put_states(states))
        # Held until all are bound: releasing an old value may run code.
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
        """Takes files from the version of the working directory that belongs to that state."""
        with self._kernel.interruptible(), self._ordered(step, jail_pb2.Wanted(files=True), borrow) as line:
            number = told_files(line, step)
        if reason := self._kept_files.bring(number, paths):
            raise NotKept(reason)
        with suppress(Exception):  # finders may be the user's
            self._kernel.in_context(importlib.invalidate_caches)

    def _wanted(self, names: list[str], locations: Sequence[Location]) -> jail_pb2.Wanted:
        states = _keys(locations, "hidden")
        present = self._kernel.in_context(lambda: ambient_state.versions(states))
        wanted = make(jail_pb2.Wanted, names=names)
        for state in states:
            make(wanted.states.add, location=state, version=present.get(state, ""))
        return wanted

    def _fetched(
        self, step: int, wanted: jail_pb2.Wanted, borrow: Borrow
    ) -> tuple[dict[str, object], dict[str, object]]:
        with self._ordered(step, wanted, borrow) as line:
            sources, parts = received(line, step)
        self._kernel.take_sources(
            {each: sources[each] for each in sources.keys() - self._kernel.sources.keys()}
        )
        parcel = StateUnpickler(parts, self._checkpointing.landing())
        values, states = parcel.repaired({"set": follow})
        return values, states

    @contextmanager
    def _ordered(self, step: int, wanted: jail_pb2.Wanted, borrow: Borrow) -> Iterator[socket.socket]:
        """The socket on which the answer will come. Raises NotKept."""
        line = borrow(step)
        if line is None:
            raise NotKept("this runtime keeps no former states")
        with line:
            with suppress(BrokenPipeError, ConnectionResetError):  # the reader of the answer reports why
                order(line, wanted)
            yield line

    def give(self, line: socket.socket, files: int | None = None) -> None:
        """In a fork of a frozen copy: sends what the other end requests.

        files: the version of the working directory that belongs to this state; None if the requester has another
        directory.
        """
        with suppress(BrokenPipeError, ConnectionResetError):  # the requester has gone
            wanted = ordered(line)
            if wanted is None:
                return
            if wanted.files:
                if files is None:
                    refuse(line, "files are not lent to another jail")
                else:
                    tell_files(line, files)
                return
            try:
                content = self._packed(wanted)
            except Exception as error:
                refuse(line, _reason(error))
            else:
                hand_over(line, content)

    def _packed(self, wanted: jail_pb2.Wanted) -> Content:
        there = {seen.location: seen.version for seen in wanted.states}
        here = self._kernel.in_context(lambda: ambient_state.versions(there))
        differing = [state for state, version in there.items() if here.get(state, "") != version]
        states = self._kernel.in_context(lambda: ambient_transfer.take_states(differing))
        return packed(
            set(wanted.names), states, self._namespace, self._checkpointing.anchors(), self._kernel.sources
        )

    # -- without one --

    def forget(self, locations: Sequence[Location]) -> None:
        """Removes names and files; other locations have nothing to remove."""
        gone = [self._namespace.pop(name, None) for name in _keys(locations, "name")]
        del gone
        for path in _keys(locations, "file"):
            if path != ".":
                _remove(self._workdir / path)

    def arrange(self, locations: Sequence[Location]) -> None:
        """Puts names into this order. Each other name stays after the name that it follows now."""
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
        """Imports the modules, except those that cannot be imported."""
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
