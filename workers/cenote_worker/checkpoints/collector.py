"""The edge where a checkpoint leaves a jail: packets of the frozen copy become chunks in a draft and a checked state.

The copy is as hostile as the jail it was made in. Its packets are bounded one by one and together, the digest of each
chunk is computed here, and what its state is made of must be in the store or have been sent.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.printable import printable
from cenote_security.sealed import SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.state import MAX_PARTS, MAX_TEXT, MAX_THINGS, State, parse_state
from cenote_worker.checkpoints.writer import Draft
from cenote_worker.chunks import CHUNK, split_digests
from cenote_worker.content import Content
from cenote_worker.fields import check_count
from cenote_worker.frames import Packet, receive_packet, send_packet
from cenote_worker.pieces import Assembly

MAX_BATCH: Final = 2 * 8 * 2**20
"""Bytes of one packet's chunks: twice what a copy collects before it sends."""

MAX_STATE: Final = 128 * 2**20
"""Bytes of a State: enough for 300 GB in chunks."""

MAX_FIELDS: Final = MAX_PARTS + 8 * MAX_THINGS
"""Of a State: what it may have of each kind, counted before there is an object for each."""

ACKNOWLEDGED: Final = b"\1"

_LOOK = 1_000
"""Milliseconds between two looks at whether anybody still waits."""

_ENDED = (
    "the copy of its state ended before it was done; it may have needed more memory than the runtime may have"
)


def _never(_seconds: float) -> str:
    return ""


class CopyLine:
    """What a frozen copy says on one socket, packet by packet."""

    def __init__(
        self,
        sock: socket.socket,
        assembly: Assembly | None,
        given_up: Callable[[], str],
        stalled: Callable[[float], str] = _never,
    ) -> None:
        """given_up: why nobody waits any more, empty while somebody does. stalled: likewise, given the seconds for
        which nothing has come."""
        self._sock = sock
        self._assembly = assembly
        self._given_up = given_up
        self._stalled = stalled

    def next(self) -> Packet:
        """Waits for it. Raises CheckpointRefusedError when none will come, ProtocolViolation."""
        ready = select.poll()
        ready.register(self._sock, select.POLLIN)
        while True:
            began = time.monotonic()
            while not ready.poll(_LOOK):
                self._check()
                if reason := self._stalled(time.monotonic() - began):
                    raise CheckpointRefusedError(reason)
            self._check()  # whoever never falls silent has no more time than others
            try:
                packet = receive_packet(self._sock)
            except ConnectionError:
                packet = None
            if packet is None:
                raise CheckpointRefusedError(self._given_up() or _ENDED)
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
            raise CheckpointRefusedError(_ENDED) from None

    def close(self) -> None:
        self._sock.close()
        if self._assembly is not None:
            self._assembly.close()


class Collector:
    """Reads one checkpoint from one socket, which it closes."""

    def __init__(
        self,
        sock: socket.socket,
        draft: Draft,
        limit: int,
        assembly: Assembly | None,
        given_up: Callable[[], str],
        stalled: Callable[[float], str] = _never,
    ) -> None:
        """limit: bytes that the state may have. given_up, stalled: see CopyLine."""
        self._line = CopyLine(sock, assembly, given_up, stalled)
        self._draft = draft
        self._limit = limit
        self._sent = 0

    def collect(self) -> State:
        """Everything that the state is made of is in the draft when this returns.

        Raises CheckpointRefusedError when the jail gave up or broke the protocol, OSError for the store's trouble.
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
    """The last word of a copy, not looked into yet. Raises ProtocolViolation."""
    content = Content.from_wire(payload, descriptors, MAX_STATE)
    try:
        parts = content.unpack()
        if len(parts) != 1:
            raise ProtocolViolation("a state in several parts")
        data = bytes(parts[0])
        check_count(data, checkpoint_pb2.State, MAX_FIELDS)
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
