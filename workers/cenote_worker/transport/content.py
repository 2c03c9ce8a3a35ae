"""Content of any size in parts: inline in a frame when small, in a sealed memfd beside it when large.

The same bytes either way: a table of lengths, then the parts, each aligned so that arrays can be used in place.
Parts are written once, straight from the buffers they come from, and never copied again: the receiver of
the memfd maps it privately, sees its own copy-on-write pages and can write to them.

The parts of a whole state are in one memory, in the layout of PartLayout, for the writer, the checker and the mapper.
Large parts have their own pages and are mapped one by one, so that private pages of one are freed with it,
independently of the others. Small ones share a mapping: each mapping takes one of the 65,530 entries of a table in
the kernel.

A Holding is the right to content that lives outside any runtime.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final, Protocol, Self

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_security.sealed_memory import (
    ALIGNMENT,
    Buffer,
    BufferLayout,
    PrivatePages,
    SealedDraft,
    SealedMemory,
    aligned,
    copy_bytes,
)
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

INLINE_LIMIT = 48 * 1024
"""Bytes. A packet must fit a socket's send buffer (208 KiB by default) next to others of its kind."""

MAX_PARTS = 1_000_000
"""A table of 8 MB: more buffers than any sensible value has, and a bound on a reader's work."""


_LENGTH = struct.Struct("<Q")
_BEFORE = aligned(_LENGTH.size)
"""Bytes before the first part if there is only one."""

_GAP = bytes(_BEFORE - _LENGTH.size)
_SMALL = INLINE_LIMIT - _BEFORE

Part = Buffer | tuple[Buffer, ...]
"""One part, in one buffer or in several that are written end to end."""


@dataclass(frozen=True, slots=True)
class Content:
    """Parts, packed; or, with a count of 0, the bytes of a file. Exactly one of `inline` and `memory` is set.

    The owner of a Content with memory owns its descriptor: call `close`, or pass it on.
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
        layout = BufferLayout.of([len(table), *lengths])
        pieces = list(_placed(layout, [(table,), *grouped]))
        if layout.size <= INLINE_LIMIT:
            return cls(size=layout.size, count=len(parts), inline=b"".join(pieces))
        return cls(size=layout.size, count=len(parts), memory=SealedMemory.create(pieces))

    @classmethod
    def _small(cls, part: bytes) -> Content:
        """The same for one small part, such as a cell's code, which is packed on both sides of a connection."""
        return cls(size=_BEFORE + len(part), count=1, inline=_LENGTH.pack(len(part)) + _GAP + part)

    @classmethod
    def written(cls, sizes: Sequence[int], parts: Iterable[Iterable[Buffer]]) -> Content:
        """As `pack`, for parts of these sizes that come in pieces: only one piece is in memory twice.

        Raises what the parts raise, and OSError when the machine has no memory for them.
        """
        table = struct.pack(f"<{len(sizes)}Q", *sizes)
        layout = BufferLayout.of([len(table), *sizes])
        pieces = _placed(layout, chain([(table,)], parts))
        if layout.size <= INLINE_LIMIT:
            return cls(size=layout.size, count=len(sizes), inline=b"".join(pieces))
        draft = SealedDraft()
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
        """The bytes of a file that does not exist yet."""
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
        """A copy of the only part, such as a cell's code. Raises as `unpack` does."""
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
        """Content from a trusted sender: from a supervisor to a jail, from a host of runtimes to its successor.

        Descriptors are taken as in `from_wire`, but memory is not checked: in gVisor, memory from outside shows no
        seals, and a shared value may be on disk.
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


def packed_head(first: Buffer, sizes: Sequence[int]) -> tuple[bytes, list[int], int]:
    """What `Content.pack` makes of a first part and others of these sizes: the bytes up to the first part's end, the
    offsets of the others, and the size of all."""
    lengths = [memoryview(first).nbytes, *sizes]
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    layout = BufferLayout.of([len(table), *lengths])
    (_, end), (begin, _), *others = layout.table
    return b"".join((table, bytes(begin - end), first)), [offset for offset, _ in others], layout.size


def _placed(layout: BufferLayout, groups: Iterable[Iterable[Buffer]]) -> Iterator[Buffer]:
    end = 0
    for (start, length), pieces in zip(layout.table, groups, strict=True):
        yield bytes(start - end)
        yield from pieces
        end = start + length


def _split(whole: memoryview, count: int) -> list[memoryview]:
    if len(whole) < 8 * count:
        raise ProtocolViolation("content is shorter than its table")
    lengths = struct.unpack_from(f"<{count}Q", whole)
    layout = BufferLayout.of([8 * count, *lengths])
    if layout.size > len(whole):
        raise ProtocolViolation("the parts of a content reach beyond it")
    return [whole[start : start + length] for start, length in layout.table[1:]]


LARGE: Final = 256 * 1024
"""Bytes from which on a part has its own mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLayout:
    """offsets: of the parts, in order. small: the end of the small ones. size: the end of all."""

    offsets: tuple[int, ...]
    small: int
    size: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Self:
        """Small parts in order, each on its own cache line; then the large ones, each beginning on a page."""
        offsets = [0] * len(sizes)
        end = 0
        for index in (index for index, size in enumerate(sizes) if size < LARGE):
            offsets[index] = _up(end, ALIGNMENT)
            end = offsets[index] + sizes[index]
        small = end
        for index in (index for index, size in enumerate(sizes) if size >= LARGE):
            offsets[index] = _up(end, mmap.PAGESIZE)
            end = offsets[index] + sizes[index]
        return cls(offsets=tuple(offsets), small=small, size=end)


def write_parts(target: int, parts: Sequence[memoryview]) -> None:
    """Writes the parts into memory that is large enough. Raises OSError."""
    for part, offset in zip(parts, PartLayout.of([part.nbytes for part in parts]).offsets, strict=True):
        while part:
            written = os.pwrite(target, part, offset)
            part, offset = part[written:], offset + written


def joined_parts(parts: Sequence[memoryview]) -> Iterator[Buffer]:
    """All bytes of that memory, in order."""
    end = 0
    sizes = [part.nbytes for part in parts]
    # An empty part may have the offset of another.
    for offset, _, part in sorted(
        zip(PartLayout.of(sizes).offsets, sizes, parts, strict=True), key=itemgetter(0, 1)
    ):
        yield bytes(offset - end)
        yield part
        end = offset + part.nbytes


def part_views(content: Content, sizes: Sequence[int]) -> list[memoryview]:
    """The parts, writable and private to the caller; they keep their mappings alive. Raises OSError, ValueError.

    ValueError: the content is too short for them.
    """
    places = PartLayout.of(sizes)
    if places.size > content.size:
        raise ValueError("the parts of a state reach beyond its memory")
    small = _small(content, places)
    return [
        small[offset : offset + size] if size < LARGE else _mapped(content, offset, size)
        for offset, size in zip(places.offsets, sizes, strict=True)
    ]


def _small(content: Content, places: PartLayout) -> memoryview:
    if content.memory is None:
        return memoryview(bytearray(content.inline or b""))
    return _mapped(content, 0, places.small) if places.small else memoryview(bytearray())


def _mapped(content: Content, offset: int, size: int) -> memoryview:
    assert content.memory is not None, "what is inline is small"
    access = mmap.PROT_READ | mmap.PROT_WRITE
    fd = content.memory.fileno()
    return memoryview(PrivatePages(fd, size, flags=mmap.MAP_PRIVATE, prot=access, offset=offset))


def _up(offset: int, step: int) -> int:
    return -(-offset // step) * step


class Holding(Protocol):
    """The right to a reference's value, and the value's place."""

    @property
    def place(self) -> str:
        """The platform that has the value; empty for this process."""

    @property
    def id(self) -> str:
        """Its id on the platform; empty in this process."""

    def content(self) -> Content:
        """The sealed value for one more holder, which closes it. Blocks to fetch a value from elsewhere."""

    def release(self) -> None:
        """Gives the right up. Called once."""


class HeldHere:
    """Sealed memory of this process."""

    place = ""
    id = ""

    def __init__(self, content: Content) -> None:
        self._content = content

    def content(self) -> Content:
        return self._content.duplicate()

    def release(self) -> None:
        self._content.close()
