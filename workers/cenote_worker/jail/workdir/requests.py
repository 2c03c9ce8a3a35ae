"""Access to the working directory for clients outside the jail.

No process outside ever opens a path that a jail made: the worker, inside the same walls as the cells, opens it and
sends bytes. No symbolic link is followed. That is not a protection (a cell may read a link's target), but a file's
content then never depends on a link that changes meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from cenote_proto.v1 import jail_pb2
from cenote_worker.jail.tracking.files.file_locks import reading
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content

__builtins__ = BUILTINS

_stat, _fstat, _scandir = os.stat, os.fstat, os.scandir

_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | _NOFOLLOW  # opening a pipe must not wait for its writer
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW

_KINDS = {
    stat.S_IFREG: jail_pb2.FileEntry.FILE,
    stat.S_IFDIR: jail_pb2.FileEntry.FOLDER,
    stat.S_IFLNK: jail_pb2.FileEntry.LINK,
}


class Workdir:
    """Requests about paths below one folder. Each raises OSError for what cannot be done."""

    def __init__(self, top: str) -> None:
        self._top = top

    def answer(
        self, request: jail_pb2.FileRequest, descriptors: list[int], reply: jail_pb2.Reply
    ) -> Content | None:
        """Fills the reply; a content that is returned belongs to it."""
        parts = [part for part in request.path.split(b"/") if part not in (b"", b".")]
        match request.operation:
            case jail_pb2.FileRequest.LIST:
                self._list(parts, request.limit, reply.folder)
            case jail_pb2.FileRequest.STAT:
                self._stat(parts, reply.folder)
            case jail_pb2.FileRequest.READ:
                content = self._read(parts, request)
                content.to_wire(reply.file.content, [])
                return content
            case jail_pb2.FileRequest.WRITE:
                self._write(parts, request, descriptors)
                reply.done.SetInParent()
            case jail_pb2.FileRequest.DELETE:
                self._delete(parts)
                reply.done.SetInParent()
            case jail_pb2.FileRequest.NOTE:
                reply.done.SetInParent()
        return None

    def _list(self, parts: list[bytes], limit: int, reply: jail_pb2.Folder) -> None:
        reply.SetInParent()
        with self._folder(parts) as folder, _scandir(folder) as entries:
            found = [os.fsencode(entry.name) for entry in islice(entries, limit + 1)]
            reply.cut = len(found) > limit
            for name in sorted(found[:limit]):
                with suppress(FileNotFoundError):  # a process of the jail may have removed it
                    _fill(reply.entries.add(), name, _stat(name, dir_fd=folder, follow_symlinks=False))

    def _stat(self, parts: list[bytes], reply: jail_pb2.Folder) -> None:
        with self._folder(parts[:-1]) as folder:
            name = parts[-1] if parts else b"."
            _fill(reply.entries.add(), name, _stat(name, dir_fd=folder, follow_symlinks=False))

    def _read(self, parts: list[bytes], request: jail_pb2.FileRequest) -> Content:
        with self._folder(parts[:-1]) as folder, reading(_last(parts), _READ, folder) as file:
            status = _fstat(file.number)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            size = max(status.st_size - request.offset, 0)
            if size > request.limit and not request.ranged:
                raise OSError(errno.EFBIG, f"it has {size} bytes; at most {request.limit} are read at once")
            return Content.of_file(file.number, request.offset, min(size, request.limit))

    def _write(self, parts: list[bytes], request: jail_pb2.FileRequest, descriptors: list[int]) -> None:
        content = Content.delivered(request.content, descriptors)
        try:
            name = _last(parts)
            with self._folder(parts[:-1], make=True) as folder:
                if request.overwrite:
                    _replace(name, folder, content)
                else:
                    _create(name, folder, content)
        finally:
            content.close()

    def _delete(self, parts: list[bytes]) -> None:
        name = _last(parts)
        with self._folder(parts[:-1]) as folder:
            if stat.S_ISDIR(_stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    @contextmanager
    def _folder(self, parts: list[bytes], *, make: bool = False) -> Iterator[int]:
        folder = os.open(self._top, _FOLDER)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=folder)
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _last(parts: list[bytes]) -> bytes:
    if not parts:
        raise OSError(errno.EISDIR, "it is the working directory itself")
    return parts[-1]


def _create(name: bytes, folder: int, content: Content) -> None:
    """Creates a file, whole or not at all."""
    file = os.open(name, _CREATE, 0o600, dir_fd=folder)
    try:
        content.write_to(file)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(file)


def _replace(name: bytes, folder: int, content: Content) -> None:
    """The file's old content stays until the new one is there; a link is replaced, not followed."""
    temporary = b".%s.part" % os.urandom(8).hex().encode()
    _create(temporary, folder, content)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _fill(entry: jail_pb2.FileEntry, name: bytes, status: os.stat_result) -> None:
    entry.name = name
    entry.kind = _KINDS.get(stat.S_IFMT(status.st_mode), jail_pb2.FileEntry.OTHER)
    entry.size, entry.modified = status.st_size, status.st_mtime
