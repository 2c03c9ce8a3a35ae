"""Chunks on their way out of a jail: cut, known by their digests, and only those that the store does not have."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.chunks import cut, digest
from cenote_worker.content import Content
from cenote_worker.frames import Send, receive_packet
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

BATCH_BYTES = 8 * 2**20
"""A copy needs this much memory of its own, however much it sends: the next batch waits until one was stored."""

BATCH_CHUNKS = 1_000
"""Their digests fit a packet."""


class Shipment:
    """One socket to the collector outside. Calls raise OSError when that has gone."""

    def __init__(self, sock: socket.socket, send: Send, known: set[bytes]) -> None:
        """known: digests of the chunks that need not be sent; it grows."""
        self._sock = sock
        self._send = send
        self._known = known
        self._batch = checkpoint_pb2.CheckpointPacket()
        self._chunks: list[memoryview] = []
        self._size = 0

    def parts(self, parts: Iterable[memoryview], *, dense: bool) -> list[checkpoint_pb2.StoredPart]:
        """Sends what is new of each part."""
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
        """The last word: everything that it is made of was sent."""
        self.flush()
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.pack([state.SerializeToString()])
        content.to_wire(packet.state, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()

    def failure(self, reason: str) -> None:
        """Instead of `state`."""
        self._send(
            self._sock, make(checkpoint_pb2.CheckpointPacket, failure=reason).SerializeToString(), None
        )

    def flush(self) -> None:
        """Sends what was collected and waits until it is stored."""
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
