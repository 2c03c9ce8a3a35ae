"""Images of processes, as files beside the checkpoints of one runtime.

An image is in the state of the checkpoint of its number, and is never all that there is of a state: it may be removed
at any time, or come after its checkpoint. Only jails of one environment can become it, which ends with the machine,
so it is not synced.

    image ...  |  StoredImage (protobuf)  |  its length, magic

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
from cenote_worker.transport.content import Content

IMAGE: Final = ".image"
"""Suffix of the files."""

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
    why there is no image; then all else is empty.
    """

    key: str = ""
    size: int = 0
    seal: bytes = b""
    missing: tuple[str, ...] = ()
    common: bytes = b""
    common_of: str = ""
    reason: str = ""

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
        )


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

    def open(self, number: int) -> tuple[StoredImage, Content] | None:
        """The same, with the image for a jail; its receiver closes it. None where there is no image."""
        found = self._opened(number)
        if found is None:
            return None
        file, stored = found
        if not stored.size:
            os.close(file)
            return None
        return stored, Content(size=stored.size, count=0, memory=SealedMemory(file, stored.size))

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

    def delete(self, number: int) -> None:
        """Deletes an image; a missing one is fine."""
        self._file(number).unlink(missing_ok=True)
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
                is_ours = path.suffix in (IMAGE, COMMON) and path.stem.isdecimal()
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

    def write(self, image: SealedMemory, check: Callable[[], None]) -> None:
        """Writes the image itself. check: called now and then; what it raises ends that."""
        if not is_of_this_machine(self._file):
            raise OSError("its file system may remove files that are in use")
        view = image.map()
        for at in range(0, len(view), _PIECE):
            check()
            self._append(view[at : at + _PIECE])

    def publish(self, stored: StoredImage) -> FileIdentity:
        """Writes what is said of it, and gives the file its name."""
        said = stored.to_message().SerializeToString()
        self._append(memoryview(said + _FOOTER.pack(len(said), _MAGIC)))
        self._draft.rename(self._target)
        found = identity(self._file)
        self.discard()
        return found

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
    return StoredImage.from_message(message) if message.size == rest else None


def _shared_in(store: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(store) as entries:
        yield from (Path(entry.path) for entry in entries if entry.name.endswith(COMMON))


def identity(file: int) -> FileIdentity:
    """Of an open file."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def sha256_of(file: int, start: int = 0, end: int = sys.maxsize) -> bytes:
    """Of the bytes of an open file between these offsets, as far as it has them."""
    digesting, buffer = hashlib.sha256(), memoryview(bytearray(_AT_ONCE))
    while got := os.preadv(file, [buffer[: end - start]], start):
        digesting.update(buffer[:got])
        start += got
    return digesting.digest()
