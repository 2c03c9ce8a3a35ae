"""The edge where a state leaves a jail: as a checkpoint, or whole, for a fork.

The frozen copy that sends it is as hostile as the jail it was made in. Its packets are bounded one by one and
together. The packets of a checkpoint become chunks in a draft and a checked state: the digest of each chunk is
computed here, and each chunk of the state must be in the store or have been sent. A whole state goes into memory that
this process pays for and never reads; the copy may write anything there until it is sealed.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_security.printable import printable
from cenote_security.sealed_memory import FillableMemory, SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.image_files import CommonMemory
from cenote_worker.checkpoints.state import MAX_PARTS, MAX_TEXT, MAX_THINGS, State, parse_state
from cenote_worker.checkpoints.writer import CheckpointDraft
from cenote_worker.transport.chunks import CHUNK, split_digests
from cenote_worker.transport.content import Content, PartLayout
from cenote_worker.transport.packets import (
    Packet,
    PacketAssembly,
    check_field_count,
    receive_packet,
    send_packet,
)

MAX_BATCH: Final = 2 * 8 * 2**20
"""Bytes of one packet's chunks: twice what a copy collects before it sends."""

MAX_STATE: Final = 128 * 2**20
"""Bytes of a State: enough for 300 GB in chunks."""

MAX_FIELDS: Final = MAX_PARTS + 8 * MAX_THINGS
"""Fields of a State, counted before an object is made for each."""

ACKNOWLEDGED: Final = b"\1"

_LOOK = 1_000
"""Milliseconds between two checks whether the requester still waits."""

ENDED: Final = (
    "the copy of its state ended before it was done; it may have needed more memory than the runtime may have"
)


def _never(_seconds: float) -> str:
    return ""


class CopyLine:
    """The packets that a frozen copy sends on one socket."""

    def __init__(
        self,
        sock: socket.socket,
        assembly: PacketAssembly | None,
        given_up: Callable[[], str],
        stalled: Callable[[float], str] = _never,
    ) -> None:
        """given_up: why the requester no longer waits, empty while it does. stalled: likewise, given the seconds
        since the last packet."""
        self._sock = sock
        self._assembly = assembly
        self._given_up = given_up
        self._stalled = stalled

    def next(self) -> Packet:
        """Waits for the next packet. Raises CheckpointRefusedError when none will come, ProtocolViolation."""
        ready = select.poll()
        ready.register(self._sock, select.POLLIN)
        while True:
            began = time.monotonic()
            while not ready.poll(_LOOK):
                self._check()
                if reason := self._stalled(time.monotonic() - began):
                    raise CheckpointRefusedError(reason)
            self._check()  # a copy that sends without a pause has no more time than others
            try:
                packet = receive_packet(self._sock)
            except ConnectionError:
                packet = None
            if packet is None:
                raise CheckpointRefusedError(self._given_up() or ENDED)
            whole = packet if self._assembly is None else self._assembly.take(packet)
            if whole is not None:
                return whole

    def _check(self) -> None:
        if reason := self._given_up():
            raise CheckpointRefusedError(reason)

    def answer(self, descriptors: list[int] | None = None) -> None:
        """Raises CheckpointRefusedError when the copy has gone."""
        try:
            send_packet(self._sock, ACKNOWLEDGED, descriptors)
        except OSError:
            raise CheckpointRefusedError(self._given_up() or ENDED) from None

    def close(self) -> None:
        self._sock.close()
        if self._assembly is not None:
            self._assembly.close()


class CheckpointReceiver:
    """Reads one checkpoint from one socket, which it closes."""

    def __init__(
        self,
        sock: socket.socket,
        draft: CheckpointDraft,
        limit: int,
        assembly: PacketAssembly | None,
        given_up: Callable[[], str],
        stalled: Callable[[float], str] = _never,
    ) -> None:
        """limit: bytes that the state may have. given_up, stalled: see CopyLine."""
        self._line = CopyLine(sock, assembly, given_up, stalled)
        self._draft = draft
        self._limit = limit
        self._sent = 0

    def collect(self) -> State:
        """All chunks of the state are in the draft when this returns.

        Raises CheckpointRefusedError when the jail gave up or broke the protocol, OSError when the store fails.
        """
        try:
            while True:
                packet = self._line.next()
                state = self._take(packet)
                if state is not None:
                    return state
        except ProtocolViolation as violation:
            raise CheckpointRefusedError(f"it broke the protocol: {violation}") from None
        finally:
            self._line.close()

    def _take(self, packet: Packet) -> State | None:
        try:
            message = parsed(packet.data)
            match message.WhichOneof("body"):
                case "chunks":
                    self._add(message.chunks, packet.descriptors)
                    return None
                case "state":
                    return self._state(stated(message.state, packet.descriptors))
                case "failure":
                    raise CheckpointRefusedError(printable(message.failure[:MAX_TEXT]))
            raise ProtocolViolation("a packet of a checkpoint without a body")
        finally:
            packet.close()

    def _add(self, fresh: checkpoint_pb2.FreshChunks, descriptors: list[int]) -> None:
        content = Content.from_wire(fresh.data, descriptors, MAX_BATCH)
        try:
            self._sent += content.size
            if content.count or self._sent > self._limit or any(not 0 < n <= CHUNK for n in fresh.lengths):
                raise ProtocolViolation("chunks that are too long or too many")
            if sum(fresh.lengths) != content.size:
                raise ProtocolViolation("chunks that are not of the stated lengths")
            self._write(fresh, _bytes(content))
        finally:
            content.close()
        self._line.answer()

    def _write(self, fresh: checkpoint_pb2.FreshChunks, data: memoryview) -> None:
        claimed = split_digests(fresh.digests)
        start = 0
        if len(claimed) != len(fresh.lengths):
            raise ProtocolViolation("chunks without their digests")
        for length, digest in zip(fresh.lengths, claimed, strict=True):
            if self._draft.add(data[start : start + length], dense=fresh.dense) != digest:
                raise ProtocolViolation("a chunk has another digest than was said")
            start += length

    def _state(self, message: checkpoint_pb2.State) -> State:
        state = parse_state(message, self._limit)
        if not state.lengths.keys() <= self._draft.places.keys():
            raise ProtocolViolation("a state of chunks that were never sent")
        return state


def stated(payload: jail_pb2.Payload, descriptors: list[int]) -> checkpoint_pb2.State:
    """The last message of a copy, not checked yet. Raises ProtocolViolation."""
    content = Content.from_wire(payload, descriptors, MAX_STATE)
    try:
        parts = content.unpack()
        if len(parts) != 1:
            raise ProtocolViolation("a state in several parts")
        data = bytes(parts[0])
        check_field_count(data, checkpoint_pb2.State, MAX_FIELDS)
        return checkpoint_pb2.State.FromString(data)
    except DecodeError:
        raise ProtocolViolation("a state that is none") from None
    finally:
        content.close()


def parsed(data: bytes) -> checkpoint_pb2.CheckpointPacket:
    """Raises ProtocolViolation."""
    try:
        return checkpoint_pb2.CheckpointPacket.FromString(data)
    except DecodeError:
        raise ProtocolViolation("a packet of a checkpoint that is none") from None


def _bytes(content: Content) -> memoryview:
    memory: SealedMemory | None = content.memory
    return memory.map() if memory is not None else memoryview(content.inline or b"")


_MOST_MEMORIES = 2
"""One for the files, one for all else."""


_IMAGE_BEGINS: Final = b"CENTIMG3"
"""The first bytes of a file of `image.c`, which it writes last."""

_COMMON_AT: Final = 248
"""Where its header says which memory of a zygote it lacks. No more of the file is read here."""


Sparing = Callable[[int], AbstractContextManager[None]]
"""A context in which the memory file of this inode is not charged to the jail."""


@dataclass(frozen=True, slots=True)
class ReceivedState:
    """state: its parts have no digests. memories: the bytes of the parts. The owner closes it."""

    state: State
    memories: tuple[Content, ...]

    def close(self) -> None:
        for memory in self.memories:
            memory.close()


@dataclass(frozen=True, slots=True)
class ReceivedImage:
    """state: files only. memories: the files, if there are any, and the process. key: see `zygote/image_key.py`.
    zygote: the memory that the image lacks, for a jail of another zygote; None if it is not known. The owner closes
    it.
    """

    state: State
    memories: tuple[Content, ...]
    key: str = ""
    zygote: CommonMemory | None = None

    @property
    def image(self) -> Content:
        return self.memories[-1]

    @property
    def common(self) -> int:
        """The inode of the file of a zygote's memory that it lacks, as it says; 0 for none."""
        assert self.image.memory is not None  # see StateReceiver.receive_image
        return int.from_bytes(os.pread(self.image.memory.fileno(), 8, _COMMON_AT), "little")

    def close(self) -> None:
        for memory in self.memories:
            memory.close()
        if self.zygote is not None:
            self.zygote.file.close()


class StateReceiver:
    """Reads one whole state from one socket, which it closes."""

    def __init__(
        self,
        sock: socket.socket,
        limit: int,
        assembly: PacketAssembly | None,
        given_up: Callable[[], str],
        sparing: Sparing,
    ) -> None:
        """limit: bytes that the state may have. given_up: see CopyLine. sparing: see JailAccount."""
        self._line = CopyLine(sock, assembly, given_up)
        self._limit = limit
        self._sparing = sparing
        self._lent = ExitStack()
        self._rooms: list[FillableMemory | Content] = []
        self._is_written = False

    def close(self) -> None:
        """Ends the copy, unless one of the others was called."""
        with self._reading():
            pass

    def receive(self) -> ReceivedState:
        """The state, which no process can change any more.

        Raises CheckpointRefusedError when the jail gave up or broke the protocol, OSError when memory is short.
        """
        with self._reading():
            return self._handed_over(self._stated())

    def receive_image(self, *, partial: bool) -> ReceivedImage:
        """The same for an image. Only the jail that becomes it reads its contents.

        partial: accept an image that lacks something; otherwise it is refused.
        """
        with self._reading():
            message = self._stated()
            files, given = self._files(message), len(self._rooms)
            if (missing := missing_of(files)) and not partial:
                raise CheckpointRefusedError(missing[0])
            while not self._is_written:
                self._take(self._line.next())
            if len(self._rooms) != given + 1:
                raise ProtocolViolation("an image that is in no memory of its own")
            rooms, self._rooms = self._rooms, []
            imaged = ReceivedImage(files, _sealed(rooms))
            memory = imaged.image.memory
            if memory is None or os.pread(memory.fileno(), len(_IMAGE_BEGINS), 0) != _IMAGE_BEGINS:
                imaged.close()
                raise ProtocolViolation("an image that is none")
            return imaged

    def _stated(self) -> checkpoint_pb2.State:
        while (message := self._take(self._line.next())) is None:
            pass
        return message

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ProtocolViolation as violation:
            raise CheckpointRefusedError(f"it broke the protocol: {violation}") from None
        finally:
            self._line.close()
            self._lent.close()
            for room in self._rooms:
                room.close()

    def _take(self, packet: Packet) -> checkpoint_pb2.State | None:
        try:
            message = parsed(packet.data)
            match message.WhichOneof("body"):
                case "room":
                    room = FillableMemory(self._bounded(message.room))
                    self._rooms.append(room)
                    self._lent.enter_context(self._sparing(os.fstat(room.fileno()).st_ino))
                    self._line.answer([room.fileno()])
                    return None
                case "held":
                    size = self._bounded(message.held.size)
                    self._rooms.append(Content.from_wire(message.held, packet.descriptors, size))
                    return None
                case "whole":
                    return stated(message.whole, packet.descriptors)
                case "written":
                    self._is_written = True
                    return None
                case "failure":
                    raise CheckpointRefusedError(printable(message.failure[:MAX_TEXT]))
            raise ProtocolViolation("a packet that is no part of a whole state")
        finally:
            packet.close()

    def _bounded(self, size: int) -> int:
        self._limit -= size
        if self._limit < 0 or len(self._rooms) == _MOST_MEMORIES:
            raise ProtocolViolation("a state that is too large, or in too many memories")
        return size

    def _files(self, message: checkpoint_pb2.State) -> State:
        state = parse_state(message, sum(room.size for room in self._rooms), cut=False)
        files = [file.content.size for file in state.files if file.content is not None]
        if state.groups or state.process is not None:
            raise ProtocolViolation("an image beside variables by value")
        if ([PartLayout.of(files).size] if files else []) != [room.size for room in self._rooms]:
            raise ProtocolViolation("memories that files do not fit into")
        return state

    def _handed_over(self, message: checkpoint_pb2.State) -> ReceivedState:
        state = parse_state(message, sum(room.size for room in self._rooms), cut=False)
        files = [file.content.size for file in state.files if file.content is not None]
        if state.process is None:
            raise ProtocolViolation("a whole state without that of its process")
        others = [part.size for group in (state.process, *state.groups) for part in group.parts]
        needed = [PartLayout.of(sizes).size for sizes in ([files] if files else []) + [others]]
        if needed != [room.size for room in self._rooms]:
            raise ProtocolViolation("memories that a state does not fit into")
        rooms, self._rooms = self._rooms, []
        return ReceivedState(state, _sealed(rooms))


def _sealed(rooms: list[FillableMemory | Content]) -> tuple[Content, ...]:
    """Seals all of them, or closes all. Raises ProtocolViolation."""
    done: list[Content] = []
    try:
        for room in rooms:
            done.append(room if isinstance(room, Content) else _of(room))
    except MalformedValueError as error:
        for each in (*done, *rooms[len(done) :]):
            each.close()
        raise ProtocolViolation(str(error)) from None
    return tuple(done)


def _of(room: FillableMemory) -> Content:
    return Content(size=room.size, count=0, memory=room.seal())
