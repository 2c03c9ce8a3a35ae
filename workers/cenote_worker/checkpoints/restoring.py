"""From a checkpoint to what fills a fresh jail: verified chunks in sealed memory, which nothing here opens.

Large parts are mapped by the jail where they are stored, instead of a copy of them in sealed memory. Getting and
filling 500 MB of new memory takes 0.25 CPU-s, looking through what the kernel has of the file anyway 0.08. A private
mapping of the file is like one of sealed memory: no other process sees what is written to it, and a deleted file
lasts as long as it is mapped. Unlike sealed memory, a process that may write to the store could change the file;
Cenote never does once it is published.

A jail gets such a file's descriptor only while it runs no code but Cenote's, which maps the file and closes the
descriptor: other code, being of the same user, could change the file's permissions.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from mmap import PAGESIZE
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_security.sealed_memory import Buffer
from cenote_worker.checkpoints.folder import Readable
from cenote_worker.checkpoints.manifest import RAW, ZLIB, ChunkLocation, Manifest
from cenote_worker.checkpoints.state import NOTHING_REBUILT, Group, Rebuild, StoredFile, StoredPart, index_for
from cenote_worker.checkpoints.store import CheckpointStore, failures
from cenote_worker.transport.chunks import CHUNK, DIGEST, Digesting, chunk_length, digest, split_digests
from cenote_worker.transport.content import Content

LARGE: Final = 2**20
"""Bytes of a part that may be lent, and for each extent of it: a process has 65,530 mappings at most."""

_MOST_LENT_FILES: Final = 64
"""Each is a request to the jail, and a descriptor here."""

_AT_ONCE: Final = 4 * CHUNK
"""Bytes that are still in the processor's nearest cache when they are digested."""


class DamagedChunk(Exception):
    """A chunk is not what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of a part, from `at` on, that are contiguous in one file."""

    file: int
    at: int
    offset: int
    length: int


class Lender:
    """The files of one restore. Each is open from the first part lent of it until the lender is closed."""

    def __init__(self, folder: Readable, chunks: Mapping[bytes, ChunkLocation]) -> None:
        self._folder = folder
        self._chunks = chunks
        self._files: dict[int, int] = {}
        self._lent: dict[int, checkpoint_pb2.LentFile] = {}
        self._count = 0
        self._buffer = memoryview(bytearray(_AT_ONCE))

    def lend(self, part: StoredPart) -> tuple[int, bytes] | None:
        """The part's number among the lent parts, and its digest; None for a part that cannot be lent.

        Raises DamagedChunk, OSError.
        """
        extents = self._extents(part) if part.size >= LARGE else []
        if not extents or not all(self._open(extent.file) for extent in extents):
            return None
        whole = self._verified(part, extents)
        for extent in extents:
            lent = self._lent.setdefault(extent.file, checkpoint_pb2.LentFile())
            lent.extents.add(
                part=self._count, size=part.size, at=extent.at, offset=extent.offset, length=extent.length
            )
        self._count += 1
        return self._count - 1, whole

    def files(self) -> Iterator[tuple[int, checkpoint_pb2.LentFile]]:
        """Each descriptor, which the lender keeps, with what is lent of its file."""
        for number, lent in self._lent.items():
            yield self._files[number], lent

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _extents(self, part: StoredPart) -> list[Extent]:
        """An empty list where there are too many for its size, or where one begins within a page."""
        found: list[Extent] = []
        at = 0
        for key, length in part.chunks():
            place = self._chunks[key]
            last = found[-1] if found else None
            if last is not None and (last.file, last.offset + last.length) == (place.file, place.offset):
                found[-1] = Extent(
                    file=last.file, at=last.at, offset=last.offset, length=last.length + length
                )
            else:
                found.append(Extent(file=place.file, at=at, offset=place.offset, length=length))
            if place.coding != RAW or len(found) * LARGE > part.size or found[-1].offset % PAGESIZE:
                return []
            at += length
        return found

    def _open(self, number: int) -> bool:
        if number in self._files:
            return True
        descriptor = self._folder.lend(number) if len(self._files) < _MOST_LENT_FILES else None
        if descriptor is None:
            return False
        self._files[number] = descriptor
        return True

    def _verified(self, part: StoredPart, extents: list[Extent]) -> bytes:
        """The digest of the part, after all its chunks were verified."""
        digests = iter(split_digests(part.digests))
        whole = Digesting()
        for extent in extents:
            for start in range(0, extent.length, _AT_ONCE):
                data = self._buffer[: min(_AT_ONCE, extent.length - start)]
                if os.preadv(self._files[extent.file], [data], extent.offset + start) != data.nbytes:
                    raise DamagedChunk(f"file {extent.file} is cut off")
                for at in range(0, data.nbytes, CHUNK):
                    if digest(data[at : at + CHUNK]) != next(digests):
                        raise DamagedChunk(f"a chunk in file {extent.file} is not what was written")
                whole.update(data)
        return whole.digest()


FILES_AT_ONCE: Final = 32 * 2**20
"""Bytes of the working directory that are sent at once; a single larger file is sent alone."""

_MOST_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of filling a jail; its receiver closes its content. kind: of a RestorePiece.

    names: the variables in it, or the paths, for errors. lent: places of its parts that are empty because the jail
    has mapped them, and their numbers there. file: a borrowed descriptor that goes with it; -1 for none.
    """

    kind: jail_pb2.RestorePiece.Kind.ValueType
    content: Content
    names: tuple[str, ...]
    lent: Mapping[int, int] = field(default_factory=dict)
    file: int = -1


class Restoration:
    """One checkpoint, read: everything that a jail needs is verified, and in memory or lent. Close it.

    lent: for a jail that has nothing yet. given: the input of the steps that are run again; goes before the other
    pieces.
    record: of these steps, empty for none. damage: what is left out since it could not be read, a line each.
    """

    def __init__(
        self,
        pieces: list[Piece],
        manifest: Manifest,
        given: list[Piece],
        record: bytes,
        lender: Lender,
        damage: tuple[str, ...] = (),
    ) -> None:
        self.pieces = pieces
        self.manifest = manifest
        self.given = given
        self.record = record
        self.damage = damage
        self.lent = [_lent(file, lent) for file, lent in lender.files()]
        self._lender = lender

    def close(self) -> None:
        for piece in (*self.lent, *self.given, *self.pieces):
            piece.content.close()
        self._lender.close()


def read(
    store: CheckpointStore,
    name: str,
    manifest: Manifest,
    *,
    partial: bool,
    added: Iterable[str] = (),
    lending: bool = True,
) -> Restoration:
    """Reads and verifies all chunks; what is damaged is left out if `partial`.

    added: names that stay in the namespace although the checkpoint lacks them. lending: jails may map large parts
    in place.

    Raises CheckpointDamagedError naming what is damaged, StoreFailedError.
    """
    lender = Lender(store.folder(name), manifest.chunks if lending else {})
    reader = _Reader(store.folder(name), manifest, lender if lending else None)
    pieces: list[Piece] = []
    given: list[Piece] = []
    damage: list[str] = []
    whole = False
    try:
        with failures(store.folder(name).place):
            record = reader.record(damage) if manifest.rebuild.steps else b""
            rebuild = manifest.rebuild if record else NOTHING_REBUILT
            for piece in reader.given(rebuild, damage) if record else ():
                given.append(piece)
            for piece in reader.pieces(rebuild, damage):
                pieces.append(piece)
        if damage and not partial:
            raise store.damaged(name, manifest.number, tuple(damage))
        pieces.append(_end(manifest, (*given, *pieces), rebuild.names, added))
        whole = True
    finally:
        if not whole:
            Restoration(pieces, manifest, given, b"", lender).close()
    return Restoration(pieces, manifest, given, record, lender, tuple(damage))


def read_files(store: CheckpointStore, name: str, manifest: Manifest) -> Iterator[Piece]:
    """The files of a checkpoint's state alone, each piece for its receiver to close.

    Raises CheckpointDamagedError, StoreFailedError.
    """
    damage: list[str] = []
    with failures(store.folder(name).place):
        yield from _Reader(store.folder(name), manifest, None).files(damage)
    if damage:
        raise store.damaged(name, manifest.number, tuple(damage))


def verify(store: CheckpointStore, name: str, checkpoint: int | str | None = None) -> None:
    """Reads all that a checkpoint needs. Raises CheckpointDamagedError, StoreFailedError, UnknownEntryError."""
    read(store, name, store.manifest(name, checkpoint), partial=False).close()


class _Reader:
    """The parts of one checkpoint, run by run."""

    def __init__(self, folder: Readable, manifest: Manifest, lender: Lender | None) -> None:
        """lender: lends large parts; None where all are copied."""
        self._folder = folder
        self._manifest = manifest
        self._lender = lender

    def pieces(self, rebuild: Rebuild, damage: list[str]) -> Iterator[Piece]:
        """Each in turn; damaged ones are named in `damage` instead."""
        state = self._manifest.state
        yield from self._files(state.files, damage)
        yield from self._process(damage)
        given, made = set(rebuild.given_groups(state.groups)), set(rebuild.names)
        for place, group in enumerate(state.groups):
            if not (place in given or (group.names and made.issuperset(group.names))):
                yield from self._variables(group, damage)

    def files(self, damage: list[str]) -> Iterator[Piece]:
        """The files alone; damaged ones are named in `damage` instead."""
        yield from self._files(self._manifest.state.files, damage)

    def record(self, damage: list[str]) -> bytes:
        """The record of the steps that led to the state; empty where there is none."""
        record = self._manifest.record
        try:
            return b"".join(self._read(record)) if record is not None else b""
        except DamagedChunk as error:
            damage.append(f"the record of the steps that are to be run again ({error})")
            return b""

    def given(self, rebuild: Rebuild, damage: list[str]) -> Iterator[Piece]:
        """The stored input of the steps that are run again."""
        state = self._manifest.state
        yield from self._files(
            tuple(state.files[place] for place in rebuild.given_files(state.files)), damage
        )
        yield from self._process(damage)
        for place in rebuild.given_groups(state.groups):
            yield from self._variables(state.groups[place], damage)

    def _process(self, damage: list[str]) -> Iterator[Piece]:
        process = self._manifest.state.process
        if process is not None:
            yield from self._group(jail_pb2.RestorePiece.PROCESS, process, "state of the process", damage)

    def _variables(self, group: Group, damage: list[str]) -> Iterator[Piece]:
        named = f"variables {', '.join(group.names[:10])}" if group.names else "a group without names"
        yield from self._group(jail_pb2.RestorePiece.GROUP, group, named, damage)

    def _group(
        self, kind: jail_pb2.RestorePiece.Kind.ValueType, group: Group, named: str, damage: list[str]
    ) -> Iterator[Piece]:
        wholes = _Wholes()
        try:
            lent = self._lent_parts(group)
            parts = (
                wholes.passing(self._read(part)) if place not in lent else wholes.of_lent(lent[place][1])
                for place, part in enumerate(group.parts)
            )
            sizes = [0 if place in lent else part.size for place, part in enumerate(group.parts)]
            content = Content.written([*sizes, DIGEST * len(sizes)], chain(parts, [wholes.joined()]))
        except DamagedChunk as error:
            damage.append(f"{named} ({error})")
            return
        yield Piece(kind, content, group.names, {place: number for place, (number, _) in lent.items()})

    def _lent_parts(self, group: Group) -> dict[int, tuple[int, bytes]]:
        """Number and digest of each, by place."""
        if self._lender is None:
            return {}
        lent = ((place, self._lender.lend(part)) for place, part in enumerate(group.parts))
        return {place: found for place, found in lent if found is not None}

    def _files(self, files: tuple[StoredFile, ...], damage: list[str]) -> Iterator[Piece]:
        batch: list[tuple[StoredFile, tuple[memoryview, ...]]] = []
        size = 0
        for file in files:
            try:
                content = tuple(self._read(file.content)) if file.content is not None else ()
            except DamagedChunk as error:
                damage.append(f"file {file.message.path.decode('utf-8', 'backslashreplace')} ({error})")
                continue
            batch.append((file, content))
            size += file.content.size if file.content is not None else 0
            if size >= FILES_AT_ONCE or len(batch) >= _MOST_FILES:
                yield _file_piece(batch)
                batch, size = [], 0
        if batch:
            yield _file_piece(batch)

    def _read(self, part: StoredPart) -> Iterator[memoryview]:
        """The bytes of a part, verified. Contiguous chunks are read together."""
        digests = split_digests(part.digests)
        index = 0
        while index < len(digests):
            run = self._run(digests, index)
            yield from self._checked(part, digests, index, run)
            index += run

    def _run(self, digests: list[bytes], start: int) -> int:
        """How many uncompressed chunks from `start` on are contiguous in one file; no more than are read at once."""
        first = last = self._manifest.chunks[digests[start]]
        count = 1
        most = min(self._folder.at_once // CHUNK, len(digests) - start)
        while count < most and not last.coding:
            place = self._manifest.chunks[digests[start + count]]
            if (place.file, place.offset, place.coding) != (
                last.file,
                last.offset + last.stored,
                first.coding,
            ):
                break
            last, count = place, count + 1
        return count

    def _checked(self, part: StoredPart, digests: list[bytes], start: int, run: int) -> Iterator[memoryview]:
        first = self._manifest.chunks[digests[start]]
        lengths = [chunk_length(part.size, index) for index in range(start, start + run)]
        if first.coding == ZLIB:
            data = _inflated(self._stored(first, first.stored), lengths[0])
        else:
            data = self._stored(first, sum(lengths))
        at = 0
        for length, expected in zip(lengths, digests[start : start + run], strict=True):
            if digest(data[at : at + length]) != expected:
                raise DamagedChunk(f"a chunk in file {first.file} is not what was written")
            at += length
        yield data

    def _stored(self, first: ChunkLocation, size: int) -> memoryview:
        try:
            data = self._folder.read(first.file, first.offset, size)
        except FileNotFoundError:
            raise DamagedChunk(f"file {first.file} is gone") from None
        if len(data) != size:
            raise DamagedChunk(f"file {first.file} is cut off")
        return data


class _Wholes:
    """Digests of whole parts, sent to the jail after the parts: so the jail need not compute them."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []

    def passing(self, part: Iterable[memoryview]) -> Iterator[memoryview]:
        whole = Digesting()
        for piece in part:
            whole.update(piece)
            yield piece
        self._digests.append(whole.digest())

    def of_lent(self, digest: bytes) -> tuple[()]:
        """Takes the digest of a lent part, at its turn."""
        self._digests.append(digest)
        return ()

    def joined(self) -> Iterator[bytes]:
        """Call this once all parts have passed."""
        yield b"".join(self._digests)


def _inflated(stored: memoryview, length: int) -> memoryview:
    """Inflates at most the expected length: a damaged chunk must not fill the memory."""
    inflater = zlib.decompressobj()
    try:
        return memoryview(inflater.decompress(stored, length + 1))
    except zlib.error as error:
        raise DamagedChunk(str(error)) from None


def _file_piece(batch: list[tuple[StoredFile, tuple[memoryview, ...]]]) -> Piece:
    table = checkpoint_pb2.FileBatch()
    for file, _ in batch:
        entry = table.files.add()
        entry.CopyFrom(file.message)
        entry.ClearField("content")
    contents: list[tuple[Buffer, ...]] = [content for file, content in batch if file.content is not None]
    parts = [(table.SerializeToString(),), *contents]
    paths = tuple(file.message.path.decode("utf-8", "backslashreplace") for file, _ in batch)
    return Piece(jail_pb2.RestorePiece.FILES, Content.pack(parts), paths)


def _lent(file: int, lent: checkpoint_pb2.LentFile) -> Piece:
    return Piece(jail_pb2.RestorePiece.LENT, Content.pack([lent.SerializeToString()]), (), file=file)


def _end(manifest: Manifest, pieces: Iterable[Piece], made: Iterable[str], added: Iterable[str]) -> Piece:
    """The last piece, which makes the namespace: names in their order, and the modules that were in use."""
    message = manifest.state.message
    there = {name for piece in pieces if piece.kind == jail_pb2.RestorePiece.GROUP for name in piece.names}
    made = frozenset(made)
    there |= {*message.hosts, *made}
    names = [name for name in message.names if name in there]
    names += [name for name in added if name not in message.names]
    end = make(
        checkpoint_pb2.RestoreEnd,
        names=names,
        modules=message.modules,
        step=message.step,
        head=manifest.dealings.head,
        index=index_for(message, there, made),
    )
    return Piece(jail_pb2.RestorePiece.END, Content.pack([end.SerializeToString()]), ())
