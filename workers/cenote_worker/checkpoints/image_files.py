"""Images of processes, as files beside the checkpoints of one runtime.

An image is in the state of the checkpoint of its number, and is never all that there is of a state: it may be removed
at any time. Only jails of one environment can become it, which ends with the machine, so it is not synced.

The writer of a checkpoint writes the image first; the checkpoint then has the seal of its file. So a process that is
killed in between leaves an unused file, which the next writer removes.

What is in the file is hostile, and is not read here. A jail gets a descriptor that cannot be written to, and closes
it before any of the image's code runs.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.sealed_memory import SealedMemory
from cenote_worker.process.file_systems import is_of_this_machine
from cenote_worker.transport.content import Content

IMAGE: Final = ".image"
"""Suffix of the files."""

FileIdentity = tuple[int, int, int, int]
"""Changes whenever the file does."""


class ImageFiles:
    """Of one runtime. Calls raise OSError for what the folder cannot do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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

    def delete(self, number: int) -> None:
        """Deletes an image; a missing one is fine."""
        self._file(number).unlink(missing_ok=True)

    def keep_only(self, numbers: Collection[int]) -> None:
        """Deletes the images of all other checkpoints."""
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.suffix == IMAGE and path.stem.isdecimal() and int(path.stem) not in numbers:
                    self.delete(int(path.stem))

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:012d}{IMAGE}"


def identity(file: int) -> FileIdentity:
    """Of an open file."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
