"""Images of processes, as files beside the checkpoints of one runtime.

An image is in the state of the checkpoint of its number, and is never all that there is of a state: it may be removed
at any time. Only jails of one environment can become it, which ends with the machine, so it is not synced.

The writer of a checkpoint writes the image first; the checkpoint then has the seal of its file. So a process that is
killed in between leaves an unused file, which the next writer removes.

What is in the file is hostile, and is not read here. A jail gets a descriptor that cannot be written to, and closes
it before any of the image's code runs.

An image lacks the memory that all jails of its zygote have in common. A store has one copy of that, named by its
digest, and each image's own name for it beside the image: a hard link. So the kernel counts who needs it, it stays as
long as one image does, and neither a writer at the same time nor a kill can leave an image without it. Where files
cannot be linked, each image has a copy of its own. It comes from the zygote, and no jail has ever written to it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from cenote_security.sealed_memory import SealedMemory, copy_bytes
from cenote_worker.checkpoints.manifest import StoredImage
from cenote_worker.process.file_systems import is_of_this_machine
from cenote_worker.transport.content import Content

IMAGE: Final = ".image"
"""Suffix of the files."""

COMMON: Final = ".common"
"""Suffix of the files with the memory of a zygote."""

_AT_ONCE: Final = 2**18
"""Bytes that are still in the processor's nearest cache when they are digested."""

FileIdentity = tuple[int, int, int, int]
"""Changes whenever the file does."""


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
def _digest_of(common: CommonMemory) -> bytes:
    """Not XXH3, of which two files with one digest can be made: this one is shared by runtimes."""
    return sha256_of(common.file.fileno())


class ImageFiles:
    """Of one runtime. Calls raise OSError for what the folder cannot do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = folder.parent

    def write(self, number: int, image: SealedMemory) -> FileIdentity:
        """Writes the image of a checkpoint that is not published yet."""
        target = self._file(number)
        draft = target.with_suffix(".image.part")
        view = image.map()
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if not is_of_this_machine(file):
                raise OSError("its file system may remove files that are in use")
            while view:
                view = view[os.write(file, view) :]
            draft.rename(target)
            return identity(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def open(self, number: int, size: int) -> Content | None:
        """The image, for a jail; its receiver closes it. None where it is gone, or has another size."""
        try:
            file = os.open(self._file(number), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if os.fstat(file).st_size != size:
            os.close(file)
            return None
        return Content(size=size, count=0, memory=SealedMemory(file, size))

    def has_common(self, common: CommonMemory) -> bool:
        """Whether the store has this memory already. Otherwise an image with it takes that much more."""
        return self._shared(_digest_of(common)).exists()

    def write_common(self, number: int, common: CommonMemory) -> bytes:
        """Puts the memory that the image of a checkpoint lacks beside it. Returns its SHA-256."""
        digest, target = _digest_of(common), self._file(number, COMMON)
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
        if _digest_of(CommonMemory(identity(file), memory)) != stored.common:
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
