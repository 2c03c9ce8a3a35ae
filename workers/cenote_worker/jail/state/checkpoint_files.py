"""Files of the working directory, and temporary ones, for checkpoints and restores."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_proto.scalars import MAX_UINT64
from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.jail.tracking.files.file_locks import reading
from cenote_worker.jail.tracking.files.workdir_files import KEPT_FILES
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_fstat = os.fstat

_KINDS = {
    stat.S_IFREG: checkpoint_pb2.StoredFile.REGULAR,
    stat.S_IFDIR: checkpoint_pb2.StoredFile.FOLDER,
    stat.S_IFLNK: checkpoint_pb2.StoredFile.LINK,
}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SECOND = 10**9  # in nanoseconds


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One entry. content: of a regular file, mapped. refused: why it cannot be stored."""

    message: checkpoint_pb2.StoredFile
    content: memoryview | None = None
    refused: str = ""


_First = dict[tuple[int, int], bytes]
"""For files with several names: the first name, by device and inode."""


TEMPORARY: Final = b"/tmp/"
"""The prefix of a temporary file's path, independent of the real folder; other paths are relative."""

_NOT_KEPT: Final = frozenset((KEPT_FILES, ".cache", ".matplotlib"))
"""Entries of that folder that can be recreated."""


def walk(top: Path) -> Iterator[FoundFile]:
    """Everything below a folder, each folder before its contents. A process that a cell has started may change it
    meanwhile: removed files are missing, and added ones may be."""
    return _walk(top, _paths_in(top), {}, b"")


def walk_temporary(top: Path) -> Iterator[FoundFile]:
    """The same for the folder of temporary files, without Cenote's own files and caches, and without files on another
    device, such as an environment that a jail mounts there.
    """
    try:
        paths = [path for path in _paths_in(top) if path.name not in _NOT_KEPT]
        device = top.lstat().st_dev
    except OSError:
        return
    yield from _walk(top, paths, {}, TEMPORARY, device)


def _walk(
    top: Path, paths: list[Path], first: _First, prefix: bytes, device: int | None = None
) -> Iterator[FoundFile]:
    """device: files on another one are left out."""
    for path in paths:
        message = checkpoint_pb2.StoredFile(path=prefix + os.fsencode(path.relative_to(top)))
        inner = list[Path]()
        try:
            if device is not None and path.lstat().st_dev != device:
                continue
            found = _found(path, message, first)
            if message.kind == checkpoint_pb2.StoredFile.FOLDER:
                inner = _paths_in(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found = FoundFile(message, refused=error.strerror or str(error))
        yield found
        yield from _walk(top, inner, first, prefix, device)


def _paths_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _found(path: Path, message: checkpoint_pb2.StoredFile, first: _First) -> FoundFile:
    status = path.lstat()
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return FoundFile(message, refused="a pipe, socket or device")
    message.kind, message.mode = kind, stat.S_IMODE(status.st_mode)
    _keep_time(message, status.st_mtime_ns)
    if kind == checkpoint_pb2.StoredFile.LINK:
        message.target = os.fsencode(path.readlink())
    elif kind == checkpoint_pb2.StoredFile.REGULAR and status.st_nlink > 1:
        other = first.setdefault((status.st_dev, status.st_ino), message.path)
        message.target = other if other != message.path else b""
    return FoundFile(message, _content_of(path) if kind == checkpoint_pb2.StoredFile.REGULAR else None)


def _keep_time(message: checkpoint_pb2.StoredFile, nanoseconds: int) -> None:
    """A file may have any time: archives contain files from before 1970."""
    if 0 <= nanoseconds <= MAX_UINT64:
        message.modified = nanoseconds
    else:
        message.modified_second, message.modified = divmod(nanoseconds, _SECOND)


def _time_of(file: checkpoint_pb2.StoredFile) -> int:
    return file.modified_second * _SECOND + file.modified


def _content_of(path: Path) -> memoryview:
    with reading(path, _READ) as file:
        size = _fstat(file.number).st_size
        if not size:
            return memoryview(b"")
        if not file.is_ours:  # a map has a copy of the descriptor, which it closes
            return memoryview(os.pread(file.number, size, 0))
        return memoryview(mmap.mmap(file.number, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE))


Entry = tuple[checkpoint_pb2.StoredFile, memoryview | None]
"""A stored file, with the content if it is a regular one."""


def with_contents(files: Iterable[checkpoint_pb2.StoredFile], contents: Iterable[memoryview]) -> list[Entry]:
    """contents: of the regular ones among the files."""
    waiting = iter(contents)
    return [
        (file, next(waiting) if file.kind == checkpoint_pb2.StoredFile.REGULAR else None) for file in files
    ]


def put(top: Path, temporary: Path, entries: Iterable[Entry]) -> None:
    """Creates these entries, after their folders. Raises OSError."""

    def placed(path: bytes) -> Path:
        inner = path.removeprefix(TEMPORARY)
        return (top if inner == path else temporary) / os.fsdecode(inner)

    for file, content in entries:
        path = placed(file.path)
        if file.kind == checkpoint_pb2.StoredFile.FOLDER:
            path.mkdir(exist_ok=True)
            path.chmod(file.mode | stat.S_IRWXU)
        elif file.kind == checkpoint_pb2.StoredFile.LINK:
            if not path.is_symlink():  # steps that were run again may have made it
                path.symlink_to(os.fsdecode(file.target))
        elif content is not None and not (file.target and _named_again(placed(file.target), path)):
            _write(path, content, file)


def _named_again(other: Path, path: Path) -> bool:
    """Gives an existing file this name as well. Not if the name is taken, or the first name was left out: then it
    becomes a separate file with the same content."""
    try:
        os.link(other, path, follow_symlinks=False)
    except OSError:
        return path.exists() and other.exists() and path.samefile(other)
    return True


def _write(path: Path, content: memoryview, file: checkpoint_pb2.StoredFile) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(target, content) :]
        os.fchmod(target, file.mode)
        os.utime(target, ns=(_time_of(file), _time_of(file)))
    finally:
        os.close(target)
