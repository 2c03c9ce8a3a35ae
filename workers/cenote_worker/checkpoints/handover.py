"""The edge where a whole state leaves a jail, for a fork: into memory that this process pays for, and never opens.

The copy that fills it is as hostile as the jail it was made in. It may write anything there, until that is sealed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_security.printable import printable
from cenote_security.sealed import Room
from cenote_worker.checkpoints.collector import CopyLine, parsed, stated
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.state import MAX_TEXT, State, parse_state
from cenote_worker.content import Content
from cenote_worker.frames import Packet
from cenote_worker.pieces import Assembly
from cenote_worker.placed_parts import Places

_MOST_MEMORIES = 2
"""Of the files, and of all else."""


Sparing = Callable[[int], AbstractContextManager[None]]
"""Has the jail not pay, meanwhile, for a memory file of this inode."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """state: whose parts have no digests. memories: where they lie. Whoever holds it closes it."""

    state: State
    memories: tuple[Content, ...]

    def close(self) -> None:
        for memory in self.memories:
            memory.close()


class Receiver:
    """Reads one whole state from one socket, which it closes."""

    def __init__(
        self,
        sock: socket.socket,
        limit: int,
        assembly: Assembly | None,
        given_up: Callable[[], str],
        sparing: Sparing,
    ) -> None:
        """limit: bytes that the state may have. given_up: see CopyLine. sparing: see Account."""
        self._line = CopyLine(sock, assembly, given_up)
        self._limit = limit
        self._sparing = sparing
        self._lent = ExitStack()
        self._rooms: list[Room | Content] = []

    def receive(self) -> HandedOver:
        """Nobody can change it any more when this returns.

        Raises CheckpointRefusedError when the jail gave up or broke the protocol, OSError when memory is short.
        """
        try:
            while (message := self._take(self._line.next())) is None:
                pass
            return self._handed_over(message)
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
                    room = Room(self._bounded(message.room))
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

    def _handed_over(self, message: checkpoint_pb2.State) -> HandedOver:
        state = parse_state(message, sum(room.size for room in self._rooms), cut=False)
        files = [file.content.size for file in state.files if file.content is not None]
        if state.process is None:
            raise ProtocolViolation("a whole state without that of its process")
        others = [part.size for group in (state.process, *state.groups) for part in group.parts]
        needed = [Places.of(sizes).size for sizes in ([files] if files else []) + [others]]
        if needed != [room.size for room in self._rooms]:
            raise ProtocolViolation("memories that a state does not fit into")
        rooms, self._rooms = self._rooms, []
        return HandedOver(state, _sealed(rooms))


def _sealed(rooms: list[Room | Content]) -> tuple[Content, ...]:
    """All of them, or none is kept. Raises ProtocolViolation."""
    done: list[Content] = []
    try:
        for room in rooms:
            done.append(room if isinstance(room, Content) else _of(room))
    except MalformedValueError as error:
        for each in (*done, *rooms[len(done) :]):
            each.close()
        raise ProtocolViolation(str(error)) from None
    return tuple(done)


def _of(room: Room) -> Content:
    return Content(size=room.size, count=0, memory=room.seal())
