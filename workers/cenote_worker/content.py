"""Content of any size in parts: inline in a frame when small, in a sealed memfd beside it when large.

The same bytes either way: a table of lengths, then the parts, each aligned so that arrays can be used in place.
Parts are written once, straight from the buffers they come from, and never copied again: whoever receives the
memfd maps it privately, sees its own copy-on-write pages and can write to them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_security.sealed import Buffer, Draft, Layout, SealedMemory, aligned, copy_bytes
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

INLINE_LIMIT = 48 * 1024
"""Bytes. A packet must fit a socket's send buffer (208 KiB by default) next to others of its kind."""

MAX_PARTS = 1_000_000
"""A table of 8 MB: more buffers than any sensible value has, and a bound on what a reader walks."""


_LENGTH = struct.Struct("<Q")
_BEFORE = aligned(_LENGTH.size)
"""Bytes before the first part where there is one alone."""

_GAP = bytes(_BEFORE - _LENGTH.size)
_SMALL = INLINE_LIMIT - _BEFORE

Part = Buffer | tuple[Buffer, ...]
"""One part, in one buffer or in several that are written end to end."""


@dataclass(frozen=True, slots=True)
class Content:
    """Parts, packed; or, with a count of 0, the bytes of a file. Exactly one of `inline` and `memory` is set.

    Whoever holds a Content with memory owns its descriptor: call `close`, or hand it on.
    """

    size: int
    count: int
    inline: bytes | None = None
    memory: SealedMemory | None = None

    @classmethod
    def pack(cls, parts: Sequence[Part]) -> Content:
        """Copies the parts once. Raises OSError when the machine has no memory for them."""
        if len(parts) == 1 and isinstance(parts[0], bytes) and len(parts[0]) <= _SMALL:
            return cls._small(parts[0])
        grouped = [part if isinstance(part, tuple) else (part,) for part in parts]
        lengths = [sum(memoryview(piece).nbytes for piece in pieces) for pieces in grouped]
        table = struct.pack(f"<{len(lengths)}Q", *lengths)
        layout = Layout.of([len(table), *lengths])
        pieces = list(_placed(layout, [(table,), *grouped]))
        if layout.size <= INLINE_LIMIT:
            return cls(size=layout.size, count=len(parts), inline=b"".join(pieces))
        return cls(size=layout.size, count=len(parts), memory=SealedMemory.create(pieces))

    @classmethod
    def _small(cls, part: bytes) -> Content:
        """The same of one small part, such as a cell's code, which is packed on each side of a line."""
        return cls(size=_BEFORE + len(part), count=1, inline=_LENGTH.pack(len(part)) + _GAP + part)

    @classmethod
    def written(cls, sizes: Sequence[int], parts: Iterable[Iterable[Buffer]]) -> Content:
        """What `pack` makes of parts of these sizes, which come bit by bit: only a bit is in memory twice.

        Raises what the parts raise, and OSError when the machine has no memory for them.
        """
        table = struct.pack(f"<{len(sizes)}Q", *sizes)
        layout = Layout.of([len(table), *sizes])
        pieces = _placed(layout, chain([(table,)], parts))
        if layout.size <= INLINE_LIMIT:
            return cls(size=layout.size, count=len(sizes), inline=b"".join(pieces))
        draft = Draft()
        try:
            for piece in pieces:
                draft.write(piece)
            memory = draft.seal()
        finally:
            draft.close()
        return cls(size=layout.size, count=len(sizes), memory=memory)

    @classmethod
    def of_file(cls, source: int, offset: int, size: int) -> Content:
        """A part of an open file. Raises OSError when the file ends before it, or memory is short."""
        if size > INLINE_LIMIT:
            return cls(size=size, count=0, memory=SealedMemory.copy_of(source, offset, size))
        inline = os.pread(source, size, offset)
        return cls(size=len(inline), count=0, inline=inline)

    @classmethod
    def of_bytes(cls, data: Buffer) -> Content:
        """The bytes of a file that is yet to be."""
        size = memoryview(data).nbytes
        if size > INLINE_LIMIT:
            return cls(size=size, count=0, memory=SealedMemory.create([data]))
        return cls(size=size, count=0, inline=bytes(data))

    @classmethod
    def of_pieces(cls, pieces: Sequence[Buffer]) -> Content:
        """Bytes without a table, such as a file's, from several buffers end to end: copied once."""
        size = sum(memoryview(piece).nbytes for piece in pieces)
        if size > INLINE_LIMIT:
            return cls(size=size, count=0, memory=SealedMemory.create(pieces))
        return cls(size=size, count=0, inline=b"".join(pieces))

    def whole(self) -> bytes:
        """A copy of all bytes of a file."""
        return (self.inline or b"") if self.memory is None else bytes(self.memory.map())

    def write_to(self, target: int) -> None:
        """Writes the bytes of a file into an open one. Raises OSError, such as that of a full disk."""
        if self.memory is not None:
            copy_bytes(self.memory.fileno(), 0, self.size, target)
            return
        view = memoryview(self.inline or b"")
        while view:
            view = view[os.write(target, view) :]

    def unpack(self) -> list[memoryview]:
        """The parts, writable and private to the caller; they keep their mapping alive.

        Raises ProtocolViolation when the table does not fit the content.
        """
        whole = memoryview(bytearray(self.inline or b"")) if self.memory is None else self.memory.map()
        return _split(whole, self.count)

    def only_part(self) -> bytes:
        """A copy of the first part, which is all of it: what each cell's code is. Raises as `unpack` does."""
        data = self.inline
        if data is None or self.count != 1 or len(data) < _LENGTH.size:
            return bytes(self.unpack()[0])
        end = _BEFORE + _LENGTH.unpack_from(data)[0]
        if end > len(data):
            raise ProtocolViolation("the parts of a content reach beyond it")
        return data[_BEFORE:end]

    def duplicate(self) -> Content:
        """The same content for another holder; no bytes are copied."""
        memory = self.memory.duplicate() if self.memory is not None else None
        return Content(size=self.size, count=self.count, inline=self.inline, memory=memory)

    def close(self) -> None:
        if self.memory is not None:
            self.memory.close()

    # -- on the wire --

    def to_wire(self, message: jail_pb2.Payload, descriptors: list[int]) -> None:
        """Fills `message`; a descriptor that must travel with the packet is appended to `descriptors`."""
        message.size = self.size
        message.count = self.count
        if self.memory is None:
            message.inline = self.inline or b""
        else:
            message.attached = True
            descriptors.append(self.memory.fileno())

    @classmethod
    def delivered(cls, message: jail_pb2.Payload, descriptors: list[int]) -> Content:
        """What somebody sent who is trusted: a supervisor into a jail, a host of runtimes to its successor.

        Descriptors are taken as in `from_wire`, memory as it comes: in gVisor, that from outside shows no seals, and
        a shared value may be on disk.
        """
        if not message.attached:
            return cls(size=message.size, count=message.count, inline=message.inline)
        memory = SealedMemory(descriptors.pop(0), message.size)
        return cls(size=message.size, count=message.count, memory=memory)

    @classmethod
    def from_wire(cls, message: jail_pb2.Payload, descriptors: list[int], limit: int) -> Content:
        """Takes the next descriptor from `descriptors` when the message says so.

        limit: bytes that the content may have. Raises ProtocolViolation for anything that is not a sealed
        memfd of the stated size, before a single byte of it is trusted.
        """
        if message.count > MAX_PARTS or message.size > limit:
            raise ProtocolViolation(
                f"content of {message.size} bytes in {message.count} parts is over the limit"
            )
        if not message.attached:
            if len(message.inline) != message.size:
                raise ProtocolViolation("inline content is not of the stated size")
            return cls(size=message.size, count=message.count, inline=message.inline)
        if not descriptors:
            raise ProtocolViolation("content without its descriptor")
        try:
            memory = SealedMemory.receive(descriptors.pop(0), max_size=limit)
        except MalformedValueError as error:
            raise ProtocolViolation(str(error)) from None
        if memory.size != message.size:
            memory.close()
            raise ProtocolViolation("sealed content is not of the stated size")
        return cls(size=message.size, count=message.count, memory=memory)


def _placed(layout: Layout, groups: Iterable[Iterable[Buffer]]) -> Iterator[Buffer]:
    end = 0
    for (start, length), pieces in zip(layout.table, groups, strict=True):
        yield bytes(start - end)
        yield from pieces
        end = start + length


def _split(whole: memoryview, count: int) -> list[memoryview]:
    if len(whole) < 8 * count:
        raise ProtocolViolation("content is shorter than its table")
    lengths = struct.unpack_from(f"<{count}Q", whole)
    layout = Layout.of([8 * count, *lengths])
    if layout.size > len(whole):
        raise ProtocolViolation("the parts of a content reach beyond it")
    return [whole[start : start + length] for start, length in layout.table[1:]]
