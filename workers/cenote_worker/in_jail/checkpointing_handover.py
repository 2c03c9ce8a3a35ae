"""A whole state on its way out of a jail, at once: for a fork, which wants neither chunks nor digests.

Its bytes are copied once, into memory that the supervisor passes in: it holds them for all branches, so that this
jail does not pay for them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_worker import placed_parts
from cenote_worker.content import INLINE_LIMIT, Content
from cenote_worker.frames import Send, receive_packet
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


class Handover:
    """One socket to the supervisor, with the methods of Shipment. Calls raise OSError when that has gone."""

    def __init__(self, sock: socket.socket, send: Send, *, in_pieces: bool) -> None:
        """in_pieces: memory of the supervisor's could not be written to."""
        self._sock = sock
        self._send = send
        self._in_pieces = in_pieces
        self._parts: list[memoryview] = []

    def parts(self, parts: Iterable[memoryview], *, dense: bool) -> list[checkpoint_pb2.StoredPart]:
        return [self.part(part, dense=dense) for part in parts]

    def part(self, part: memoryview, *, dense: bool) -> checkpoint_pb2.StoredPart:  # noqa: ARG002
        """dense: makes no difference here, where nothing is compressed."""
        self._parts.append(part.cast("B"))
        return checkpoint_pb2.StoredPart(size=part.nbytes)

    def flush(self) -> None:
        """What the parts since the last call hold is copied when this returns: into one memory."""
        if not self._parts:
            return
        size = placed_parts.Places.of([part.nbytes for part in self._parts]).size
        if self._in_pieces or size <= INLINE_LIMIT:
            self._bring()
        else:
            self._fill(size)
        self._parts = []

    def state(self, state: checkpoint_pb2.State) -> None:
        """The last word."""
        self.flush()
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.pack([state.SerializeToString()])
        content.to_wire(packet.whole, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()

    def failure(self, reason: str) -> None:
        """Instead of `state`."""
        self._send(
            self._sock, make(checkpoint_pb2.CheckpointPacket, failure=reason).SerializeToString(), None
        )

    def room(self, size: int) -> int:
        """A descriptor of memory of the supervisor's that has so many bytes, to be closed."""
        packet = checkpoint_pb2.CheckpointPacket(room=size)
        self._send(self._sock, packet.SerializeToString(), None)
        answer = receive_packet(self._sock)
        if answer is None:
            raise BrokenPipeError
        return answer.descriptors.pop()

    def written(self) -> None:
        """The last word after `state`, of an image: it is in the room that was given last."""
        self._send(self._sock, checkpoint_pb2.CheckpointPacket(written=True).SerializeToString(), None)

    def _fill(self, size: int) -> None:
        room = self.room(size)
        placed_parts.write(room, self._parts)
        os.close(room)

    def _bring(self) -> None:
        packet, descriptors = checkpoint_pb2.CheckpointPacket(), list[int]()
        content = Content.of_pieces(list(placed_parts.joined(self._parts)))
        content.to_wire(packet.held, descriptors)
        self._send(self._sock, packet.SerializeToString(), descriptors)
        content.close()
