"""Makes checkpoints of this process's namespace and puts stored ones into it.

A checkpoint is made by a frozen copy, which sends chunks and a description directly to the collector outside, where
both are checked. Storing and loading run user code (`__reduce__`, `__setstate__`), which can do no more than a cell.
"""

from __future__ import annotations

import builtins
import decimal
import importlib
import os
import platform
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from cenote_proto.scalars import make, utf8_texts
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.execution.state_index import fill, from_message
from cenote_worker.execution.trace import file
from cenote_worker.jail.forking.frozen_copy import FrozenCopies
from cenote_worker.jail.forking.random_state import draw_anew
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.jail.sockets import socket_of
from cenote_worker.jail.state import ambient_transfer, checkpoint_files, library_changes
from cenote_worker.jail.state import image_unsafe as image
from cenote_worker.jail.state import rebuilding as checkpointing_process
from cenote_worker.jail.state.checkpoint_transport import LentParts, Shipment, StateHandover, WholeState
from cenote_worker.jail.state.copy_index import PickledNames, StateIndexing
from cenote_worker.jail.state.pickles_unsafe import (
    Landing,
    NotKept,
    dump_process,
    dump_settings,
    load,
    load_settings,
    load_sources,
)
from cenote_worker.jail.state.rebuilding import StepRebuilder
from cenote_worker.jail.state.variable_groups import NOT_STATE, Key, VariableGroups, grouped
from cenote_worker.jail.tracking.name_table import NameTable
from cenote_worker.process.modules import KnownModules
from cenote_worker.process.pristine import BUILTINS, builtins_of_cells, own_builtins
from cenote_worker.transport.chunks import split_digests
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import Send

__builtins__ = BUILTINS

_HELPERS = ("reply", "display")
"""Builtins of Cenote that are bound to this process's kernel."""

_OUR_THREADS = ("cenote-host-replies", "output")
_REASON_CHARS = 300
_PRIORITY = 10
_ONE_PROCESS = "a connection, a pipe, a thread or a process is at one runtime only"
_MOST_NAMED = 20

_Way = Shipment | StateHandover


class Checkpointing:
    """One kernel's checkpointing. Call `ran` after anything that may have bound names."""

    def __init__(self, kernel: Kernel, workdir: str, send: Send) -> None:
        self._kernel = kernel
        self._workdir = Path(workdir)
        self._temporary = Path(os.environ.get("TMPDIR", "/tmp"))
        self._send = send
        self._copies = FrozenCopies()
        self._namespace = kernel.namespace
        self._stubs: dict[str, object] = {}
        self._began_with = KnownModules.imported()
        self._seen = NameTable({})
        self._writers: dict[str, int] = {}
        self._step = 0
        """The last step of this state."""
        self.restored_at = 0
        """The step after which the restored state was stored."""
        self._restored: dict[str, object] = {}
        self._process: dict[str, Any] | None = None
        self._places: dict[library_changes.Place, object] = {}
        """Settings of libraries that are being restored."""
        self._rebuilding: StepRebuilder | None = None
        self._files: set[bytes] = set()
        self._lent = LentParts()
        self._indexing = StateIndexing(kernel)
        self.differing: tuple[str, ...] = ()
        """What differs from the restored state, a line each."""

    def offer(self, name: str, stub: object) -> None:
        """This object of the current author's namespace stands for an object of the client."""
        if self._kernel.namespace is self._namespace:
            self._stubs[name] = stub

    def ran(self, step: int) -> None:
        """Records which names the step has bound, judging by object identity."""
        self._copies.reap()
        self._step = max(self._step, step)
        with suppress(MemoryError):  # then the next cell counts as the one that bound them
            seen = NameTable(self._namespace)
            changed = seen.changed_since(self._seen)
            self._writers.update((name, step) for name in changed if name in self._namespace)
            self._seen = seen

    # -- making --

    @own_builtins()
    def make(self, request: jail_pb2.MakeCheckpoint, descriptors: list[int]) -> None:
        """Returns when the copy exists and has read the files. Raises OSError when no copy can be made."""
        content = Content.delivered(request.known, descriptors)
        known = set(split_digests(content.only_part()))
        content.close()
        with socket_of(descriptors.pop(0)) as sock:
            process = checkpointing_process.take_process(self._kernel.futures)
            self._indexing.before_copying()
            shipment: _Way = Shipment(sock, self._send, known)
            if request.form != jail_pb2.MakeCheckpoint.CHUNKS:
                in_pieces = request.form == jail_pb2.MakeCheckpoint.WHOLE_IN_PIECES
                shipment = StateHandover(sock, self._send, in_pieces=in_pieces)
            live = os.getpid()
            self._copies.run(lambda tell: self._ship(shipment, process, tell, live))

    def _ship(self, shipment: _Way, process: dict[str, object], tell: Callable[[], None], live: int) -> None:
        """live: the process whose state it is."""
        with suppress(BrokenPipeError, ConnectionResetError):  # the receiver has gone
            try:
                state = self._nothing()
                self._ship_files(shipment, state)
                tell()
                self._ship_process(shipment, state, process)
                done = self._ship_names(shipment, state)
                shipment.flush()  # the memory of values is not touched before it is sent
                self._ship_index(state, done, apart=os.getpid() != live)
                shipment.state(state)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                shipment.failure(f"{type(error).__name__}: {bounded_str(error, _REASON_CHARS)}")

    def _nothing(self) -> checkpoint_pb2.State:
        """An empty state."""
        python, machine = platform.python_version(), platform.machine()
        return make(checkpoint_pb2.State, step=self._step, python=python, machine=machine)

    def ship_image(
        self,
        sock: socket.socket,
        tell: Callable[[], None],
        severed: Collection[str],
        *,
        with_files: bool,
    ) -> tuple[int, ...] | None:
        """In a copy: sends the files, then this process's own memory. None when that is done, or the receiver has
        gone.

        In a process made from it: returns the descriptors that it was given. severed: variables that will be unusable
        there. with_files: they are not stored elsewhere.
        """
        way = StateHandover(sock, self._send, in_pieces=False)
        given: tuple[int, ...] | None = None
        with suppress(BrokenPipeError, ConnectionResetError):
            try:
                state = self._nothing()
                if with_files:
                    self._ship_files(way, state)
                tell()
                if not with_files:  # beside a checkpoint: no caller waits for it
                    niceness = max(_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0))  # it can be raised only
                    os.setpriority(os.PRIO_PROCESS, 0, niceness)
                for name in severed:
                    make(state.unkept.add, name=name, reason=_ONE_PROCESS, step=self._writers.get(name, 0))
                way.state(state)
                given = image.write(way.room(image.size()))
                if given is None:
                    way.written()
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                way.failure(f"{type(error).__name__}: {bounded_str(error, _REASON_CHARS)}")
        if given is not None:
            sock.detach()  # this process has another socket of that number, or none
            self._copies.forget()
        return given

    def _ship_files(self, shipment: _Way, state: checkpoint_pb2.State) -> None:
        temporary = list(checkpoint_files.walk_temporary(self._temporary))
        if temporary and self._temporary != Path("/tmp"):
            reason = "the folder for these has another name there"
            make(state.unset.add, name="paths of temporary files", reason=reason)
        for found in chain(checkpoint_files.walk(self._workdir), temporary):
            shown = found.message.path.decode("utf-8", "backslashreplace")
            if found.refused:
                make(self._things(state, found.message.path).add, name=f"file {shown}", reason=found.refused)
                continue
            if found.content is not None:
                found.message.content.CopyFrom(shipment.part(found.content, dense=True))
            state.files.append(found.message)
        shipment.flush()

    def _things(self, state: checkpoint_pb2.State, path: bytes) -> Any:
        """The list for files that cannot be stored."""
        return state.unset if path.startswith(checkpoint_files.TEMPORARY) else state.unkept

    def _ship_process(self, shipment: _Way, state: checkpoint_pb2.State, process: dict[str, object]) -> None:
        settings = dump_settings(self._kernel.in_context(ambient_transfer.take_settings))
        state.settings.extend(utf8_texts(settings))
        state.process.parts.extend(
            shipment.parts(dump_process(process, settings, self._kernel.sources), dense=True)
        )
        state.modules.extend(checkpointing_process.modules_in_use(self._began_with.unknown()))

    def _ship_index(self, state: checkpoint_pb2.State, done: VariableGroups, *, apart: bool) -> None:
        pickled = PickledNames(done=done, names=state.names, carried=frozenset(self._carried(state, done)))
        for each in self._indexing.of_state(pickled, self._anchor, apart=apart):
            fill(state.index.add(), each)

    def _carried(self, state: checkpoint_pb2.State, done: VariableGroups) -> Iterator[str]:
        """What is stored besides variables: states of the process, and locations."""
        yield from state.settings
        yield from library_changes.locations(key for group in done.groups for key in group.keys)
        if self._temporary == Path(os.fsdecode(checkpoint_files.TEMPORARY)):
            yield from (file(os.fsdecode(each.path)) for each in state.files if each.path[:1] == b"/")

    def _ship_names(self, shipment: _Way, state: checkpoint_pb2.State) -> VariableGroups:
        names = [name for name in self._namespace if type(name) is str and name not in NOT_STATE]
        state.names.extend(utf8_texts(names))
        state.hosts.extend(utf8_texts(name for name in names if self._is_stub(name)))
        places = self._kernel.in_context(lambda: library_changes.places(self._kernel.tracker))
        named = [name for name in names if name not in state.hosts]
        anchors = self.anchors() | library_changes.anchored(places)
        for value in library_changes.replacing(places):
            anchors.pop(id(value), None)
        done = grouped(named, self._namespace, anchors, places)
        for group in done.groups:
            stream, *buffers = group.parts
            stored = make(state.groups.add, names=group.names, parts=[shipment.part(stream, dense=True)])
            stored.parts.extend(shipment.parts(buffers, dense=False))
        for library in library_changes.unseen(self._kernel.tracker, places):
            make(state.unset.add, name=library, reason="what was set in it cannot be looked at")
        if any(type(name) is not str for name in list(self._namespace)):
            state.unkept.add(name="globals()", reason="a key that is no plain text cannot be stored")
        for key, reason in done.refused.items():
            if isinstance(key, str):
                make(state.unkept.add, name=key, reason=reason, step=self._writers.get(key, 0))
            else:
                make(state.unset.add, name=library_changes.told(key), reason=reason)
        for name, reason in self._elsewhere():
            make(state.unkept.add, name=name, reason=reason)
        return done

    def _is_stub(self, name: str) -> bool:
        return name in self._stubs and self._namespace[name] is self._stubs[name]

    def _elsewhere(self) -> list[tuple[str, str]]:
        """State of this runtime that is in no variable of the common namespace."""
        found = [
            (f"thread {thread.name}", "a running thread cannot be stored")
            for thread in threading.enumerate()
            if thread is not threading.main_thread() and thread.name not in _OUR_THREADS
        ]
        private = (f"names of {author}" for author in self._kernel.private_authors())
        return [*found, *((name, "only the common names are stored") for name in private)]

    def anchors(self) -> dict[int, tuple[str, str]]:
        """Objects that stand for the same thing in every process; see Landing.anchor."""
        anchors = {id(stub): ("host", name) for name, stub in self._stubs.items()}
        anchors[id(self._kernel.module)] = "module", "__main__"
        anchors |= {
            id(getattr(builtins, name)): ("helper", name) for name in _HELPERS if hasattr(builtins, name)
        }
        if (tracker := self._kernel.tracker) is not None:
            anchors |= {each: ("library", told) for each, told in tracker.parts_of_libraries().items()}
        anchors[id(self._kernel.in_context(decimal.getcontext))] = "context", "decimal"
        anchors |= {id(stream): ("stream", name) for name, stream in self._kernel.streams.items()}
        return anchors

    # -- restoring --

    @own_builtins()
    def restore(self, request: jail_pb2.RestorePiece, descriptors: list[int]) -> None:
        """Restores one piece. Raises any error that user code raises while its values are rebuilt."""
        content = Content.delivered(request.content, descriptors)
        try:
            parts = content.unpack()
        finally:
            content.close()
        if request.kind == jail_pb2.RestorePiece.LENT:
            lent = checkpoint_pb2.LentFile.FromString(bytes(parts[0]))
            self._lent.map(descriptors.pop(0), lent)
            return
        for place, number in request.lent.items():
            parts[place] = self._lent.take(number)
        rebuilding = self._begun()
        match request.kind:
            case jail_pb2.RestorePiece.FILES:
                batch = checkpoint_pb2.FileBatch.FromString(bytes(parts[0]))
                self._put(checkpoint_files.with_contents(batch.files, parts[1:]))
            case jail_pb2.RestorePiece.PROCESS:
                self._take_process(parts[:-1])
            case jail_pb2.RestorePiece.GROUP:
                self._restore_group(parts)
            case jail_pb2.RestorePiece.END:
                self._end(checkpoint_pb2.RestoreEnd.FromString(bytes(parts[0])), partial=request.partial)
            case jail_pb2.RestorePiece.REBUILD:
                begin = checkpoint_pb2.RebuildBegin.FromString(bytes(parts[0]))
                rebuilding.begin(begin, self._restored, self._process or {})
            case jail_pb2.RestorePiece.REPEAT:
                rebuilding.repeat(checkpoint_pb2.RepeatedStep.FromString(bytes(parts[0])))
            case jail_pb2.RestorePiece.REBUILT:
                rebuilding.end(checkpoint_pb2.RebuildEnd.FromString(bytes(parts[0])))
                self._namespace.update(self._restored)
                self._files.clear()
            case jail_pb2.RestorePiece.GIVEN:
                places = checkpoint_pb2.RebuildGiven.FromString(bytes(parts[1]))
                whole = WholeState.opened(parts[0], _delivered(request, descriptors)).given(places)
                self._restore_whole(whole, partial=request.partial)
            case jail_pb2.RestorePiece.WHOLE:
                end = checkpoint_pb2.RestoreEnd.FromString(bytes(parts[1]))
                whole = WholeState.opened(parts[0], _delivered(request, descriptors))
                self._restore_whole(whole, partial=request.partial)
                self._end(end, partial=request.partial)

    def _put(self, entries: list[checkpoint_files.Entry]) -> None:
        checkpoint_files.put(self._workdir, self._temporary, entries)
        self._files.update(file.path for file, _ in entries)

    def _restore_group(self, parts: list[memoryview]) -> None:
        """The last part holds the digests of the others."""
        *parts, known = parts
        self._found(load(parts, self.landing()))
        if self._kernel.tracker is not None:
            self._kernel.tracker.learn(zip(parts, split_digests(bytes(known)), strict=True))

    def _found(self, values: dict[Key, object]) -> None:
        """Binds names as they come: code that runs while other values are rebuilt may use them."""
        names = {key: value for key, value in values.items() if isinstance(key, str)}
        self._places.update((key, value) for key, value in values.items() if not isinstance(key, str))
        self._restored.update(names)
        self._namespace.update(names)

    def _take_process(self, parts: list[memoryview]) -> None:
        self._process = load(parts, self.landing())
        checkpointing_process.put_process(self._process)

    def _restore_whole(self, whole: WholeState, *, partial: bool) -> None:
        """Restores all pieces of a state that was handed over. A piece that cannot be rebuilt is left out if
        `partial`.

        Values that steps were given or have made are there already.
        """
        self._put(whole.files)
        if whole.process:  # a state that continues as an image has only its files here
            self._take_process(whole.process)
        there = self._restored.keys() | self._begun().made.keys()
        for names, parts in whole.groups:
            if names and there.issuperset(names):
                continue
            try:
                self._found(load(parts, self.landing()))
            except Exception as error:
                if not partial:
                    named = ", ".join(names[:_MOST_NAMED]) or "what was set in libraries"
                    raise NotKept(f"{named}: it cannot be rebuilt: {type(error).__name__}: {error}") from None

    def landing(self) -> Landing:
        """The place where stored values are rebuilt."""
        return Landing(self._namespace, self._anchor)

    def _anchor(self, kind: str, name: str) -> object:
        match kind:
            case "host":
                return self._stubs[name]
            case "module":
                return self._kernel.module
            case "helper":
                return vars(builtins)[name]
            case "context":
                return self._kernel.in_context(decimal.getcontext)
            case "place":
                return library_changes.at(name)
            case "library" if self._kernel.tracker is not None:
                return self._kernel.tracker.part_of_library(name)
            case "library":
                dotted, _, key = name.partition(":")
                return vars(importlib.import_module(dotted))[key]
        return self._kernel.streams[name]

    def _begun(self) -> StepRebuilder:
        """The rebuilder of the current restore, with what was there before it."""
        if self._rebuilding is None:
            self._rebuilding = StepRebuilder(self._kernel, self._workdir, self._stubs)
        return self._rebuilding

    def _made(self, *, partial: bool) -> dict[str, object]:
        """What was made again by running steps, if it is still unchanged. Raises NotKept."""
        rebuilding = self._begun()
        try:
            rebuilding.check_files(self._files)
        except NotKept:
            if not partial:
                raise
            return {}
        return rebuilding.made

    def _end(self, end: checkpoint_pb2.RestoreEnd, *, partial: bool) -> None:
        self._lent = LentParts()
        for module in end.modules:
            with suppress(Exception):  # it was only in use; modules that variables need are imported already
                importlib.import_module(module.name)
        expected = list(map(from_message, end.index))
        self._indexing.before_comparing(expected)
        rebuilt = self._made(partial=partial)
        made = {**self._namespace, **self._stubs, **self._restored, **rebuilt}
        for name in [name for name in self._namespace if name not in NOT_STATE]:
            del self._namespace[name]
        self._namespace.update((name, made[name]) for name in end.names if name in made)
        if self._process is not None:
            self._kernel.futures = self._process["futures"]
            self._kernel.take_sources(load_sources(self._process))
            settings = load_settings(self._process)
            self._kernel.in_context(lambda: ambient_transfer.put_settings(settings))
            ambient_transfer.put_states(
                {"warnings": self._process["warnings"]}
            )  # imports have added their own
            self._put_places(partial=partial)
            checkpointing_process.resume_random_numbers(self._process)
        if end.draw_anew:
            draw_anew()
        self.differing = self._indexing.compared(expected, draws_anew=end.draw_anew)
        self._restored, self._process, self._step = {}, None, end.step
        self._places = {}
        self.restored_at = end.head or end.step
        self._rebuilding, self._files = None, set()

    def _put_places(self, *, partial: bool) -> None:
        try:
            with builtins_of_cells():
                self._kernel.in_context(lambda: library_changes.put(self._places, self._kernel.tracker))
        except NotKept:
            if not partial:
                raise


def _delivered(request: jail_pb2.RestorePiece, descriptors: list[int]) -> list[Content]:
    """The memory parts of a whole state."""
    return [Content.delivered(memory, descriptors) for memory in request.memories]
