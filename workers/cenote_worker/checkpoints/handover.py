"""The edge where a whole state leaves a jail, for a fork: into memory that this process pays for, and never opens.

The copy that fills it is as hostile as the jail it was made in. It may write anything there, until that is sealed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_security.printable import printable
from cenote_security.sealed import Room
from cenote_worker.checkpoints.collector import CopyLine, parsed, stated
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.state import MAX_TEXT, State, parse_state
from cenote_worker.content import Content
from cenote_worker.frames import Packet
from cenote_worker.pieces import Assembly
from cenote_worker.placed_parts import Places

_MOST_MEMORIES = 2
"""Of the files, and of all else."""


_IMAGE_BEGINS: Final = b"CENTIMG1"
"""How `image.c` begins a file, once all else is written. No more of it is read here."""


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


@dataclass(frozen=True, slots=True)
class Imaged:
    """state: of files only. memories: of these, if there are any, and of the process. Its owner closes it."""

    state: State
    memories: tuple[Content, ...]

    @property
    def image(self) -> Content:
        return self.memories[-1]

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
        self._is_written = False

    def receive(self) -> HandedOver:
        """Nobody can change it any more when this returns.

        Raises CheckpointRefusedError when the jail gave up or broke the protocol, OSError when memory is short.
        """
        with self._reading():
            return self._handed_over(self._stated())

    def receive_image(self, *, partial: bool) -> Imaged:
        """The same of an image. What is in it is for the jail that becomes it to look at.

        partial: what it lacks does not matter; else that is refused.
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
            imaged = Imaged(files, _sealed(rooms))
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
        if ([Places.of(files).size] if files else []) != [room.size for room in self._rooms]:
            raise ProtocolViolation("memories that files do not fit into")
        return state

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
