"""Checkpoints of one runtime in any place that fsspec reaches: object stores, other machines, memory."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from cenote_security.printable import printable
from cenote_security.sealed_memory import Buffer
from cenote_worker.checkpoints.folder import NumberTakenError

_SUFFIX = ".checkpoint"


class FileSystem(Protocol):
    """The part of fsspec's AbstractFileSystem that is used here."""

    def ls(self, path: str, detail: bool) -> list[str]:
        """Full paths. Raises FileNotFoundError."""

    def size(self, path: str) -> int | None:
        """Bytes. Raises FileNotFoundError."""

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        """A part of a file, as much of it as there is."""

    def pipe_file(self, path: str, value: bytes, mode: str) -> None:
        """mode: with `create`, raises FileExistsError, as `put_file` does."""

    def put_file(self, source: str, target: str, /, mode: str) -> None:
        """Copies a file from this machine to the store."""

    def rm_file(self, path: str) -> None:
        """Raises FileNotFoundError."""

    def rm(self, path: str, whole: bool, /) -> None:
        """whole: a folder, with all that is in it. Raises FileNotFoundError."""

    def du(self, path: str) -> int:
        """Bytes of all files below."""

    def makedirs(self, path: str, there: bool, /) -> None:
        """there: the folder may exist. Does nothing where folders are only parts of names."""

    def invalidate_cache(self, path: str) -> None:
        """Makes `ls` list anew."""


_MAX_REASON: Final = 500
"""Characters of a driver's error: some quote a whole response."""


class Driver:
    """A file system of fsspec that raises OSError and nothing else, see FileSystem.

    Its drivers raise their libraries' errors (botocore's ClientError and NoCredentialsError, those of google, azure,
    aiohttp), but all code that works with folders expects the errors of a disk.
    """

    def __init__(self, system: FileSystem) -> None:
        self._system = system

    def ls(self, path: str, detail: bool) -> list[str]:
        with _os_errors():
            return self._system.ls(path, detail=detail)

    def size(self, path: str) -> int | None:
        with _os_errors():
            return self._system.size(path)

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        with _os_errors():
            return self._system.cat_file(path, start=start, end=end)

    def pipe_file(self, path: str, value: bytes, mode: str) -> None:
        with _os_errors():
            self._system.pipe_file(path, value, mode=mode)

    def put_file(self, source: str, target: str, /, mode: str) -> None:
        with _os_errors():
            self._system.put_file(source, target, mode=mode)

    def rm_file(self, path: str) -> None:
        with _os_errors():
            self._system.rm_file(path)

    def rm(self, path: str, whole: bool, /) -> None:
        with _os_errors():
            self._system.rm(path, whole)

    def du(self, path: str) -> int:
        with _os_errors():
            return int(self._system.du(path))

    def makedirs(self, path: str, there: bool, /) -> None:
        with _os_errors():
            self._system.makedirs(path, there)

    def invalidate_cache(self, path: str) -> None:
        with _os_errors():
            self._system.invalidate_cache(path)


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        text = " ".join(printable(f"{type(error).__name__}: {error}", lines=True).split())
        raise OSError(errno.EIO, text[:_MAX_REASON]) from error


_AT_ONCE: Final = 64 * 2**20
"""Bytes: a request takes as long as some megabytes, and the bytes being read are in memory twice meanwhile."""


class RemoteFolder:
    """See Folder. There is no lock: each writer puts a fence, and a writer that sees a later one stops.

    A file is put under its number only if there is none. The store decides that where it can (S3, GCS, Azure);
    elsewhere fsspec checks before it writes.
    """

    def __init__(self, system: FileSystem, path: str, shown: str) -> None:
        self._system = system
        self._path = path.rstrip("/")
        self.place = shown
        self.at_once = _AT_ONCE
        self.images = None

    def numbers(self) -> list[int]:
        return sorted(_numbers(self._names(), _SUFFIX))

    def size(self, number: int) -> int:
        size = self._system.size(self._file(number))
        if size is None:
            raise OSError(errno.EIO, "the store does not know how large a file is")
        return size

    def read(self, number: int, offset: int, size: int) -> memoryview:
        return memoryview(self._system.cat_file(self._file(number), start=offset, end=offset + size))

    def lend(self, number: int) -> int | None:  # noqa: ARG002
        return None

    def draft(self, number: int) -> RemoteDraft:
        return RemoteDraft(self._system, self._file(number))

    def delete(self, number: int) -> None:
        with suppress(FileNotFoundError):
            self._system.rm_file(self._file(number))

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._system.rm(self._path, True)

    def claim(self, above: int = 0) -> int | None:
        self._system.makedirs(self._path, True)
        fence = max(self._last_fence(), above) + 1
        while True:
            try:
                self._system.pipe_file(f"{self._path}/{fence:012d}.fence", b"", mode="create")
                break
            except FileExistsError:
                fence += 1
        for old in range(max(fence - 10, 1), fence):
            with suppress(OSError):
                self._system.rm_file(f"{self._path}/{old:012d}.fence")
        return fence

    def was_claimed(self) -> bool:
        return self._last_fence() > 0

    def is_claimed(self, fence: int) -> bool:
        return self._last_fence() == fence

    def release(self) -> None:
        """Does nothing: there is no lock, the next writer simply takes over."""

    def _last_fence(self) -> int:
        return max(_numbers(self._names(), ".fence"), default=0)

    def _names(self) -> list[str]:
        self._system.invalidate_cache(self._path)
        try:
            return [path.rpartition("/")[2] for path in self._system.ls(self._path, detail=False)]
        except FileNotFoundError:
            return []

    def _file(self, number: int) -> str:
        return f"{self._path}/{number:012d}{_SUFFIX}"


class RemoteDraft:
    """See DraftFile. What is written is spooled on this machine, then put at once."""

    def __init__(self, system: FileSystem, target: str) -> None:
        self._system = system
        self._target = target
        self._spool = tempfile.NamedTemporaryFile(prefix="cenote-")  # noqa: SIM115  (closed by `discard`)

    def write(self, data: Buffer) -> None:
        self._spool.write(data)

    def publish(self) -> None:
        self._spool.flush()
        try:
            self._system.put_file(self._spool.name, self._target, mode="create")
        except FileExistsError:
            raise NumberTakenError from None
        self.discard()

    def discard(self) -> None:
        with suppress(OSError):
            self._spool.close()


def _numbers(names: list[str], suffix: str) -> list[int]:
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return [int(stem) for stem in stems if stem.isdecimal()]
