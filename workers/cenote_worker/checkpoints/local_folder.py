"""Checkpoints of one runtime in a folder of this machine, or of a network file system."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.sealed_memory import Buffer
from cenote_worker.checkpoints.folder import NumberTakenError
from cenote_worker.checkpoints.image_files import ImageFiles
from cenote_worker.process.file_systems import is_of_this_machine

SUFFIX = ".checkpoint"
_LOCK = "writer"

_AT_ONCE: Final = 4 * 2**20
"""Bytes: what was read is still in the processor's cache when it is digested and written on. Mapping the files and
copying from there takes a fifth more CPU time."""


class LocalFolder:
    """See Folder. The writer holds a kernel lock, which ends with its process."""

    def __init__(self, path: Path, place: str = "", *, parent_must_exist: bool = False) -> None:
        """place: what errors call it instead of its path. parent_must_exist: claiming it makes no folder but this
        one."""
        self._path = path
        self._parent_must_exist = parent_must_exist
        self._place = place or str(path)
        self._lock = -1
        self.at_once = _AT_ONCE
        self.images = ImageFiles(path)

    @property
    def place(self) -> str:
        return self._place

    def numbers(self) -> list[int]:
        with suppress(FileNotFoundError):
            stems = [path.stem for path in self._path.iterdir() if path.suffix == SUFFIX]
            return sorted(int(stem) for stem in stems if stem.isdecimal())
        return []

    def size(self, number: int) -> int:
        return self._file(number).stat().st_size

    def read(self, number: int, offset: int, size: int) -> memoryview:
        with self._file(number).open("rb", buffering=0) as file:
            parts = [os.pread(file.fileno(), size, offset)]
            # The kernel reads at most 2 GiB per call.
            while parts[-1] and (missing := size - sum(map(len, parts))):
                parts.append(os.pread(file.fileno(), missing, offset + size - missing))
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def lend(self, number: int) -> int | None:
        try:
            lent = os.open(self._file(number), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if is_of_this_machine(lent):
            return lent
        os.close(lent)
        return None

    def draft(self, number: int) -> LocalDraft:
        return LocalDraft(self._path, self._file(number))

    def delete(self, number: int) -> None:
        self.images.delete(number)
        self._file(number).unlink(missing_ok=True)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path)
            self.images.sweep()

    def claim(self, above: int = 0) -> int | None:
        self._path.mkdir(parents=not self._parent_must_exist, exist_ok=True)
        lock = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fence = max(_fence_in(lock), above) + 1
            os.pwrite(lock, b"%020d" % fence, 0)
            os.fsync(lock)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                return None
            raise
        former, self._lock = self._lock, lock
        if former >= 0:  # of a folder that was removed meanwhile
            os.close(former)
        for leftover in self._path.glob("*.part"):  # of a writer that was killed
            leftover.unlink(missing_ok=True)
        self.images.keep_only(set(self.numbers()).intersection(self.images.numbers()))
        self.images.sweep()
        return fence

    def was_claimed(self) -> bool:
        return (self._path / _LOCK).exists()

    def is_claimed(self, fence: int) -> bool:
        if self._lock < 0:
            return False
        # A folder that was removed and made again has another lock file, and another writer.
        there = os.path.samestat(os.fstat(self._lock), (self._path / _LOCK).stat())
        return there and _fence_in(self._lock) == fence

    def release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _file(self, number: int) -> Path:
        return self._path / f"{number:012d}{SUFFIX}"


class LocalDraft:
    """See DraftFile."""

    def __init__(self, folder: Path, target: Path) -> None:
        self._folder = folder
        self._target = target
        self._draft = target.with_suffix(".part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(self._draft, flags, 0o600)

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(self._file, view) :]

    def publish(self) -> None:
        os.fsync(self._file)
        try:
            os.link(self._draft, self._target)
        except FileExistsError:
            raise NumberTakenError from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP):
                raise
            self._rename()  # a file system without hard links
        self.discard()
        _sync_folder(self._folder)

    def discard(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)

    def _rename(self) -> None:
        """Publishes by rename. Not atomic against another writer, but the lock excludes one."""
        if self._target.exists():
            raise NumberTakenError
        self._draft.rename(self._target)


def _fence_in(lock: int) -> int:
    text = os.pread(lock, 20, 0)
    return int(text) if text.isdigit() else 0


def _sync_folder(path: Path) -> None:
    """Syncs a folder: a new name is on disk only when its folder is."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
