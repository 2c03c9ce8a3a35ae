"""Sends the bytes of a state out of a jail, and into a fresh one.

For a checkpoint, the bytes are cut into chunks with digests, and only chunks that the store lacks are sent. For a
fork, which needs neither chunks nor digests, the whole state is sent at once: its bytes are copied once, into memory
that the supervisor passes in and holds for all branches, so that this jail does not pay for them. A restore maps
parts of a stored state where they are stored.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.sealed_memory import PrivatePages
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.state.checkpoint_files import Entry, with_contents
from cenote_worker.process.memory_unsafe import address_of
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport import content
from cenote_worker.transport import content as placed_parts
from cenote_worker.transport.chunks import cut, digest
from cenote_worker.transport.content import INLINE_LIMIT, Content
from cenote_worker.transport.packets import Send, receive_packet

__builtins__ = BUILTINS

BATCH_BYTES = 8 * 2**20
"""A copy needs this much memory of its own, independent of the state's size: each batch waits until the last is
stored."""

BATCH_CHUNKS = 1_000
"""Their digests fit a packet."""


class Shipment:
    """One socket to the collector outside. Calls raise OSError when the collector has gone."""

    def __init__(self, sock: socket.socket, send: Send, known: set[bytes]) -> None:
        """known: digests of the chunks that need not be sent; it grows."""
        self._sock = sock
        self._send = send
        self._known = known
        self._batch = checkpoint_pb2.CheckpointPacket()
        self._chunks: list[memoryview] = []
        self._size = 0

    def parts(self, parts: Iterable[memoryview], *, dense: bool) -> list[checkpoint_pb2.StoredPart]:
        """Sends the new chunks of each part."""
        return [self.part(part, dense=dense) for part in parts]

    def part(self, part: memoryview, *, dense: bool) -> checkpoint_pb2.StoredPart:
        """dense: streams and files, which may be worth compressing; memory of arrays is not."""
        part = part.cast("B")
        digests = []
        for chunk in cut(part):
            digests.append(key := digest(chunk))
            if key not in self._known:
                self._known.add(key)
                self._add(key, chunk, dense)
        return checkpoint_pb2.StoredPart(size=part.nbytes, digests=b"".join(digests))

    def state(self, state: checkpoint_pb2.State) -> None:
        """Ends the shipment: all parts of the state were sent."""
        self.flush()
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.pack([state.SerializeToString()])
        content.to_wire(packet.state, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()

    def failure(self, reason: str) -> None:
        """Sent instead of `state`."""
        self._send(
            self._sock, make(checkpoint_pb2.CheckpointPacket, failure=reason).SerializeToString(), None
        )

    def flush(self) -> None:
        """Sends the collected chunks and waits until they are stored."""
        if not self._chunks:
            return
        descriptors: list[int] = []
        content = Content.of_pieces(self._chunks)
        content.to_wire(self._batch.chunks.data, descriptors)
        self._send(self._sock, self._batch.SerializeToString(), descriptors)
        content.close()
        self._batch, self._chunks, self._size = checkpoint_pb2.CheckpointPacket(), [], 0
        if receive_packet(self._sock) is None:
            raise BrokenPipeError

    def _add(self, key: bytes, chunk: memoryview, dense: bool) -> None:
        if self._chunks and self._batch.chunks.dense != dense:
            self.flush()
        self._batch.chunks.dense = dense
        self._batch.chunks.digests += key
        self._batch.chunks.lengths.append(chunk.nbytes)
        self._chunks.append(chunk)
        self._size += chunk.nbytes
        if self._size >= BATCH_BYTES or len(self._chunks) >= BATCH_CHUNKS:
            self.flush()


class StateHandover:
    """One socket to the supervisor, with the methods of Shipment. Calls raise OSError when the supervisor has
    gone."""

    def __init__(self, sock: socket.socket, send: Send, *, in_pieces: bool) -> None:
        """in_pieces: the supervisor's memory could not be written to."""
        self._sock = sock
        self._send = send
        self._in_pieces = in_pieces
        self._parts: list[memoryview] = []

    def parts(self, parts: Iterable[memoryview], *, dense: bool) -> list[checkpoint_pb2.StoredPart]:
        return [self.part(part, dense=dense) for part in parts]

    def part(self, part: memoryview, *, dense: bool) -> checkpoint_pb2.StoredPart:  # noqa: ARG002
        """dense: ignored, since nothing is compressed."""
        self._parts.append(part.cast("B"))
        return checkpoint_pb2.StoredPart(size=part.nbytes)

    def flush(self) -> None:
        """Copies the parts since the last call into one memory before it returns."""
        if not self._parts:
            return
        size = placed_parts.PartLayout.of([part.nbytes for part in self._parts]).size
        if self._in_pieces or size <= INLINE_LIMIT:
            self._bring()
        else:
            self._fill(size)
        self._parts = []

    def state(self, state: checkpoint_pb2.State) -> None:
        """Ends the handover."""
        self.flush()
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.pack([state.SerializeToString()])
        content.to_wire(packet.whole, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()

    def failure(self, reason: str) -> None:
        """Sent instead of `state`."""
        self._send(
            self._sock, make(checkpoint_pb2.CheckpointPacket, failure=reason).SerializeToString(), None
        )

    def room(self, size: int) -> int:
        """A descriptor of that many bytes of the supervisor's memory, to be closed by the caller."""
        packet = checkpoint_pb2.CheckpointPacket(room=size)
        self._send(self._sock, packet.SerializeToString(), None)
        answer = receive_packet(self._sock)
        if answer is None:
            raise BrokenPipeError
        return answer.descriptors.pop()

    def written(self) -> None:
        """Ends an image's handover, after `state`: the image is in the last room."""
        self._send(self._sock, checkpoint_pb2.CheckpointPacket(written=True).SerializeToString(), None)

    def _fill(self, size: int) -> None:
        room = self.room(size)
        placed_parts.write_parts(room, self._parts)
        os.close(room)

    def _bring(self) -> None:
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.of_pieces(list(placed_parts.joined_parts(self._parts)))
        content.to_wire(packet.held, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeState:
    """groups: the names of each, and the parts of its pickle."""

    files: list[Entry]
    process: list[memoryview]
    groups: list[tuple[list[str], list[memoryview]]]

    @classmethod
    def opened(cls, state: memoryview, memories: Sequence[Content]) -> Self:
        """Takes ownership of the memories: that of the files, if they have any bytes, and that of the rest."""
        message = checkpoint_pb2.State.FromString(bytes(state))
        stored = [message.process, *message.groups]
        sizes = [part.size for group in stored for part in group.parts]
        parts = iter(content.part_views(memories[-1], sizes))
        process, *groups = [list(islice(parts, len(group.parts))) for group in stored]
        files = _entries(message.files, memories[0])
        for memory in memories:
            memory.close()
        return cls(
            files=files,
            process=process,
            groups=[(list(group.names), found) for group, found in zip(message.groups, groups, strict=True)],
        )

    def given(self, places: checkpoint_pb2.RebuildGiven) -> Self:
        """A part with these files and groups."""
        return type(self)(
            files=[self.files[place] for place in places.files],
            process=self.process,
            groups=[self.groups[place] for place in places.groups],
        )


def _entries(files: Sequence[checkpoint_pb2.StoredFile], memory: Content) -> list[Entry]:
    """memory: of the regular files, if there are any."""
    sizes = [file.content.size for file in files if file.kind == checkpoint_pb2.StoredFile.REGULAR]
    return with_contents(files, content.part_views(memory, sizes) if sizes else ())


class LentParts:
    """Lent parts of one restore."""

    def __init__(self) -> None:
        self._parts: dict[int, memoryview] = {}

    def map(self, file: int, lent: checkpoint_pb2.LentFile) -> None:
        """Maps a file's pieces of each part into place, and closes the descriptor. Raises OSError.

        Only while no user code is in this process: a descriptor reveals more than its bytes.
        """
        try:
            for extent in lent.extents:
                start = address_of(self._part(extent.part, extent.size)) + extent.at
                libc.map_over(start, extent.length, file, extent.offset)
        finally:
            os.close(file)

    def take(self, number: int) -> memoryview:
        """A part, writable and private to the caller; it keeps its mapping alive. Each is taken once."""
        return self._parts.pop(number)

    def _part(self, number: int, size: int) -> memoryview:
        if number not in self._parts:
            access = mmap.PROT_READ | mmap.PROT_WRITE
            pages = PrivatePages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=access)
            self._parts[number] = memoryview(pages)
        return self._parts[number]
