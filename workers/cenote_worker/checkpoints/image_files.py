"""Images of processes, as files beside the checkpoints of one runtime.

An image is in the state of the checkpoint of its number, and is never all that there is of a state: it may be removed
at any time. Only jails of one environment can become it, which ends with the machine, so it is not synced.

The writer of a checkpoint writes the image first; the checkpoint then says what its file has to contain. So a process
that is killed in between leaves an unused file, which the next writer removes.

What is in the file is hostile, and is read here only to compute its digest. A jail gets a descriptor that cannot be
written to, and closes it before any of the image's code runs.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.manifest import StoredImage
from cenote_worker.process.file_systems import is_of_this_machine
from cenote_worker.transport.chunks import Digesting
from cenote_worker.transport.content import Content

IMAGE: Final = ".image"
"""Suffix of the files."""

_AT_ONCE: Final = 2**18
"""Bytes that are still in the processor's nearest cache when they are digested."""

_Identity = tuple[int, int, int, int]


class ImageFiles:
    """Of one runtime. Calls raise OSError for what the folder cannot do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, _Identity] = {}
        """The files that this object has written, as they were then."""

    def write(self, number: int, image: SealedMemory) -> bytes:
        """Writes the image of a checkpoint that is not published yet. Returns its digest."""
        target = self._file(number)
        draft = target.with_suffix(".image.part")
        digesting, view = Digesting(), image.map()
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if not is_of_this_machine(file):
                raise OSError("its file system may remove files that are in use")
            while view:
                written = os.write(file, view[:_AT_ONCE])
                digesting.update(view[:written])
                view = view[written:]
            draft.rename(target)
            self._written[number] = _identity(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        return digesting.digest()

    def open(self, number: int, stored: StoredImage) -> Content | None:
        """The image, for a jail; its receiver closes it. None where it is gone, or is not what was written."""
        try:
            file = os.open(self._file(number), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if os.fstat(file).st_size != stored.size or not self._is_right(number, file, stored):
            os.close(file)
            return None
        return Content(size=stored.size, count=0, memory=SealedMemory(file, stored.size))

    def delete(self, number: int) -> None:
        """Deletes an image; a missing one is fine."""
        self._written.pop(number, None)
        self._file(number).unlink(missing_ok=True)

    def keep_only(self, numbers: Collection[int]) -> None:
        """Deletes the images of all other checkpoints."""
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.suffix == IMAGE and path.stem.isdecimal() and int(path.stem) not in numbers:
                    self.delete(int(path.stem))

    def _is_right(self, number: int, file: int, stored: StoredImage) -> bool:
        """Whether its bytes are those that were written. Nothing is read of a file that this object has written and
        that was not changed since: reading a gigabyte takes longer than waking its process.
        """
        return self._written.get(number) == _identity(file) or _digest(file) == stored.digest

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:012d}{IMAGE}"


def _identity(file: int) -> _Identity:
    """Changes whenever the file does."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def _digest(file: int) -> bytes:
    digesting, buffer, at = Digesting(), memoryview(bytearray(_AT_ONCE)), 0
    while got := os.preadv(file, [buffer], at):
        digesting.update(buffer[:got])
        at += got
    return digesting.digest()
