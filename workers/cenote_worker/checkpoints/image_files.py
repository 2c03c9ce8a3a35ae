"""Images of processes, as files beside the checkpoints of one runtime.

An image is in the state of the checkpoint of its number, and is never all that there is of a state: it may be removed
at any time, or come after its checkpoint. Only jails of one environment can become it, which ends with the machine,
so it is not synced.

    image ...  |  StoredImage (protobuf)  |  its length, magic

An image has only those chunks that an earlier one lacks, its base, if that has at least half of it. The base is a
whole image, and its name beside the other is a hard link: the kernel counts who needs it. While a process writes
images, the latest whole one has another name, of no checkpoint, so that it can be the base of the next one.

So a file has its image and all that is said of it, or has no name yet: a process that is killed meanwhile leaves a
draft, which the next writer removes. Where a process could not be written, the file says why, and has no image.

What is in an image is hostile, and is not read here. What is said of it is covered by its seal, and is not believed
before that is checked. A jail gets a descriptor that cannot be written to, and closes it before any of the image's
code runs.

An image lacks the memory that all jails of its zygote have in common. A store has one copy of that, named by its
digest, and each image's own name for it beside the image: a hard link. So the kernel counts who needs it, it stays as
long as one image does, and neither a writer at the same time nor a kill can leave an image without it. Where files
cannot be linked, each image has a copy of its own. It comes from the zygote, and no jail has ever written to it.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.sealed_memory import SealedMemory, copy_bytes
from cenote_worker.process.file_systems import is_of_this_machine
from cenote_worker.transport.chunks import cut, digest
from cenote_worker.transport.content import Content
from cenote_worker.transport.image_parts import WHOLE, ImageParts

IMAGE: Final = ".image"
"""Suffix of the files."""

BASE: Final = ".base"
"""Suffix of the further names of an image that others lack chunks of."""

LATEST: Final = 0
"""The number of the base for the next image. No checkpoint has it."""

COMMON: Final = ".common"
"""Suffix of the files with the memory of a zygote."""

_AT_ONCE: Final = 2**18
"""Bytes that are still in the processor's nearest cache when they are digested."""

_PIECE: Final = 4 * 2**20
"""Bytes of an image that are written without a look whether it is still wanted."""

_FOOTER: Final = struct.Struct("<I8s")
_MAGIC: Final = b"CENOTEIM"

_MOST_SAID: Final = 2**20
"""Bytes of a description: names of a thousand lost variables with their reasons."""

FileIdentity = tuple[int, int, int, int]
"""Changes whenever the file does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """What the file of an image says of it, at its end.

    key: see `zygote/image_key.py`; jails with the same one can become it. size: bytes. seal: see
    `runtime/state/image_seals.py`; it covers all else. missing: what it lacks of the state, a line each. common: the
    SHA-256 of the file with its zygote's memory; empty if it needs none. common_of: which zygote that was. reason:
    why there is no image; then all else is empty. parts: where it is, if it is not all in its file.
    """

    key: str = ""
    size: int = 0
    seal: bytes = b""
    missing: tuple[str, ...] = ()
    common: bytes = b""
    common_of: str = ""
    reason: str = ""
    parts: ImageParts = WHOLE

    def to_message(self) -> checkpoint_pb2.StoredImage:
        return make(
            checkpoint_pb2.StoredImage,
            key=self.key,
            size=self.size,
            seal=self.seal,
            missing=self.missing,
            common=self.common,
            common_of=self.common_of,
            reason=self.reason,
            parts=None if self.parts == WHOLE else self.parts.to_message(),
        )

    @classmethod
    def from_message(cls, message: checkpoint_pb2.StoredImage) -> StoredImage:
        return cls(
            key=message.key,
            size=message.size,
            seal=message.seal,
            missing=tuple(message.missing),
            common=message.common,
            common_of=message.common_of,
            reason=message.reason,
            parts=ImageParts.from_message(message.parts),
        )


@dataclass(frozen=True, slots=True)
class OpenedImage:
    """An image for a jail, and what is said of it. Its owner closes it."""

    stored: StoredImage
    content: Content
    base: SealedMemory | None

    @property
    def files(self) -> tuple[int, ...]:
        """The descriptors of its own file and, if it has one, of its base."""
        assert self.content.memory is not None  # see ImageFiles.open
        own = self.content.memory.fileno()
        return (own,) if self.base is None else (own, self.base.fileno())

    @property
    def identities(self) -> tuple[FileIdentity, ...]:
        return tuple(map(identity, self.files))

    def close(self) -> None:
        self.content.close()
        if self.base is not None:
            self.base.close()


@dataclass(frozen=True, slots=True)
class ImageBase:
    """A whole image that this process has written. file: device, inode, size, time of the last change; links that
    come and go change no part of that. chunks: their numbers by their digests."""

    file: FileIdentity
    chunks: dict[bytes, int] = field(compare=False)


@dataclass(frozen=True, slots=True)
class CommonMemory:
    """The memory that all jails of a zygote have in common, as a file. Its owner closes that."""

    identity: FileIdentity
    file: SealedMemory = field(compare=False)

    @classmethod
    def of(cls, descriptor: int) -> CommonMemory:
        """Of a duplicate. Raises OSError, as when the jail has ended whose end that is."""
        own = os.dup(descriptor)
        found = identity(own)
        return cls(found, SealedMemory(own, found[2]))

    @property
    def zygote(self) -> str:
        """A name that no other zygote of this start of the machine has."""
        return "-".join(map(str, self.identity))

    @property
    def inode(self) -> int:
        return self.identity[1]


@lru_cache(maxsize=16)
def digest_of(common: CommonMemory) -> bytes:
    """Not XXH3, of which two files with one digest can be made: this one is shared by runtimes."""
    return sha256_of(common.file.fileno())


class ImageFiles:
    """Of one runtime. Calls raise OSError for what the folder cannot do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = folder.parent

    def draft(self, number: int) -> ImageDraft:
        """Begins the image of a checkpoint."""
        return ImageDraft(self._file(number))

    def described(self, number: int) -> StoredImage | None:
        """What is said of the image of a checkpoint; None where there is no whole file."""
        found = self._opened(number)
        if found is None:
            return None
        file, stored = found
        os.close(file)
        return stored

    def open(self, number: int) -> OpenedImage | None:
        """The same, with the image for a jail. None where there is no image, or its base is gone."""
        found = self._opened(number)
        if found is None:
            return None
        file, stored = found
        if not stored.size:
            os.close(file)
            return None
        base: SealedMemory | None = None
        if stored.parts != WHOLE:
            try:
                found_base = os.open(self._file(number, BASE), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                os.close(file)
                return None
            base = SealedMemory(found_base, os.fstat(found_base).st_size)
        content = Content(size=stored.size, count=0, memory=SealedMemory(file, stored.size))
        return OpenedImage(stored, content, base)

    def _opened(self, number: int) -> tuple[int, StoredImage] | None:
        try:
            file = os.open(self._file(number), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            stored = _said(file)
        except BaseException:
            os.close(file)
            raise
        if stored is None:
            os.close(file)
            return None
        return file, stored

    def numbers(self) -> list[int]:
        """Of the checkpoints that have such a file, ascending."""
        with suppress(FileNotFoundError):
            stems = [path.stem for path in self._folder.iterdir() if path.suffix == IMAGE]
            return sorted(int(stem) for stem in stems if stem.isdecimal())
        return []

    def free(self) -> int:
        """Bytes that are free on its disk."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def has_common(self, common: CommonMemory) -> bool:
        """Whether the store has this memory already. Otherwise an image with it takes that much more."""
        return self._shared(digest_of(common)).exists()

    def write_common(self, number: int, common: CommonMemory) -> bytes:
        """Puts the memory that the image of a checkpoint lacks beside it, before that. Returns its SHA-256."""
        digest, target = digest_of(common), self._file(number, COMMON)
        shared = self._shared(digest)
        target.unlink(missing_ok=True)
        try:
            os.link(shared, target)
            if target.stat().st_size == common.file.size:
                return digest
            shared.unlink()  # it was cut
        except OSError:  # there is none yet, or it has as many names as it can, or files cannot have two
            pass
        draft = target.with_suffix(".common.part")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o400)
        try:
            copy_bytes(common.file.fileno(), 0, common.file.size, file)
            draft.rename(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        # Another writer may have been first: then this image has a copy of its own.
        with suppress(OSError):
            os.link(target, shared)
        return digest

    def open_common(self, number: int, stored: StoredImage) -> Content | None:
        """The memory that an image lacks, for a jail; its receiver closes it. None as `open`."""
        try:
            file = os.open(self._file(number, COMMON), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        memory = SealedMemory(file, os.fstat(file).st_size)
        if digest_of(CommonMemory(identity(file), memory)) != stored.common:
            shared = self._shared(stored.common)
            with memory, suppress(FileNotFoundError):
                if os.path.samestat(shared.stat(), os.fstat(file)):
                    shared.unlink()  # so that the next image does not get it
            return None
        return Content(size=memory.size, count=0, memory=memory)

    def keep_as_base(self, number: int, chunks: dict[bytes, int]) -> ImageBase | None:
        """Gives a whole image the name of the base for the next one. None where files cannot have two names."""
        draft = self._file(LATEST, ".base.part")
        with suppress(OSError):
            draft.unlink(missing_ok=True)
            os.link(self._file(number), draft)
            draft.rename(self._file(LATEST, BASE))
            return ImageBase(_unlinked(self._file(LATEST, BASE)), chunks)
        return None

    def is_there(self, base: ImageBase) -> bool:
        """Whether the base for the next image is this one."""
        with suppress(OSError):
            return _unlinked(self._file(LATEST, BASE)) == base.file
        return False

    def link_base(self, number: int, base: ImageBase) -> None:
        """Puts the base beside the image of a checkpoint, before that."""
        target = self._file(number, BASE)
        target.unlink(missing_ok=True)
        os.link(self._file(LATEST, BASE), target)
        if _unlinked(target) != base.file:
            raise OSError("the image that it lacks chunks of is gone")

    def delete(self, number: int) -> None:
        """Deletes an image; a missing one is fine."""
        self._file(number).unlink(missing_ok=True)
        self._file(number, BASE).unlink(missing_ok=True)
        common = self._file(number, COMMON)
        with suppress(FileNotFoundError), common.open("rb") as file:
            common.unlink()
            # Looked at afterwards: of two that go at the same time, the later one sees that none is left.
            if os.fstat(file.fileno()).st_nlink <= 1:
                self.sweep()

    def keep_only(self, numbers: Collection[int]) -> None:
        """Deletes the images of all other checkpoints."""
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                is_ours = path.suffix in (IMAGE, BASE, COMMON) and path.stem.isdecimal()
                if is_ours and int(path.stem) not in numbers:
                    self.delete(int(path.stem))

    def sweep(self) -> None:
        """Removes the memory of zygotes that no image of the store needs any more.

        One that gets its first other name meanwhile stays with that image: only its shared name goes.
        """
        for path in _shared_in(self._store):
            with suppress(FileNotFoundError):
                if path.stat().st_nlink == 1:
                    path.unlink()

    def _file(self, number: int, suffix: str = IMAGE) -> Path:
        return self._folder / f"{number:012d}{suffix}"

    def _shared(self, digest: bytes) -> Path:
        return self._store / f"{digest.hex()}{COMMON}"


class ImageDraft:
    """The image of one checkpoint, as long as its file has no name."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._draft = target.with_suffix(".image.part")
        self._file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write(self, image: SealedMemory, check: Callable[[], None], parts: ImageParts = WHOLE) -> None:
        """Writes the parts of the image that its base lacks. check: called now and then; what it raises ends that."""
        if not is_of_this_machine(self._file):
            raise OSError("its file system may remove files that are in use")
        view = image.map()
        extents = parts.extents()
        ends = [*(each.start for each in extents[1:]), len(view)]
        for extent, end in zip(extents, ends, strict=True):
            if extent.in_base:
                continue
            for at in range(extent.start, end, _PIECE):
                check()
                self._append(view[at : min(at + _PIECE, end)])

    def publish(self, stored: StoredImage) -> None:
        """Writes what is said of it, and gives the file its name."""
        said = stored.to_message().SerializeToString()
        self._append(memoryview(said + _FOOTER.pack(len(said), _MAGIC)))
        self._draft.rename(self._target)
        self.discard()

    def discard(self) -> None:
        """Removes what has no name. Calling it again, or after `publish`, is fine. Never raises."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)

    def _append(self, view: memoryview) -> None:
        while view:
            view = view[os.write(self._file, view) :]


def _said(file: int) -> StoredImage | None:
    """What an open file says of its image; None where it is cut, or is none."""
    size = os.fstat(file).st_size
    footer = os.pread(file, _FOOTER.size, max(size - _FOOTER.size, 0))
    if len(footer) != _FOOTER.size:
        return None
    length, magic = _FOOTER.unpack(footer)
    rest = size - _FOOTER.size - length
    if magic != _MAGIC or length > _MOST_SAID or rest < 0:
        return None
    try:
        message = checkpoint_pb2.StoredImage.FromString(os.pread(file, length, rest))
    except DecodeError:
        return None
    stored = StoredImage.from_message(message)
    return stored if stored.parts.fit(stored.size) and stored.parts.own_bytes(stored.size) == rest else None


def _shared_in(store: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(store) as entries:
        yield from (Path(entry.path) for entry in entries if entry.name.endswith(COMMON))


def identity(file: int) -> FileIdentity:
    """Of an open file."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def _unlinked(path: Path) -> FileIdentity:
    """See ImageBase."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def digests_of(image: SealedMemory, check: Callable[[], None]) -> list[bytes]:
    """Of the chunks of an image, in their order. check: see ImageDraft. Not SHA-256: a runtime that makes two chunks
    with one digest gets an image that does not have its seal."""
    view, found = image.map(), list[bytes]()
    for at in range(0, len(view), _PIECE):
        check()
        found += map(digest, cut(view[at : at + _PIECE]))
    return found


def sha256_of(file: int, start: int = 0, end: int = sys.maxsize) -> bytes:
    """Of the bytes of an open file between these offsets, as far as it has them."""
    digesting = hashlib.sha256()
    digest_more(digesting, file, start, end)
    return digesting.digest()


def digest_more(digesting: hashlib._Hash, file: int, start: int, end: int) -> None:
    """See `sha256_of`."""
    buffer = memoryview(bytearray(_AT_ONCE))
    while got := os.preadv(file, [buffer[: end - start]], start):
        digesting.update(buffer[:got])
        start += got
