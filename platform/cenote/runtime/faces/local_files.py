"""The local side of transfers: this machine's files, never reached through a link that a jail may have made.

A folder that is mounted writable is a place where jails make links, perhaps under the user's own id. So a link is
followed only if root or this user made it, and never below such a folder. What a transfer writes appears under its
name whole or not at all, and replaces a link rather than following it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from cenote_security.errors import FileRefusedError, FileTakenError, UnknownFileError
from cenote_security.policy import Mount
from cenote_security.printable import printable
from cenote_worker.transport.content import Content

LocalPath = str | PathLike[str]

_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_OTHERS = frozenset({stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK})
"""What is never replaced: root could do that to /dev/null."""
_MOST_LINKS = 40
"""As the kernel."""


def read_local(path: LocalPath, most: int, mounts: Sequence[Mount]) -> Content:
    """The bytes of a regular file. Raises FileRefusedError, also for more than `most` bytes."""
    with _explained(path), _Walk(mounts).to(path) as place:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        file = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            if size > most:
                raise OSError(errno.EFBIG, f"it has {size} bytes; the policy lets {most} in at once")
            return Content.of_file(file, 0, size)
        finally:
            os.close(file)


def write_local(path: LocalPath, content: Content, mounts: Sequence[Mount], *, overwrite: bool) -> None:
    """Makes the file, or replaces it. Raises FileTakenError, FileRefusedError."""
    folder, name = os.path.split(path)
    with _explained(path), _Walk(mounts).to(folder or ".") as place:
        if name in ("", ".", ".."):
            raise OSError(errno.EISDIR, "it names a folder; name the file")
        temporary = f".cenote-{secrets.token_hex(8)}.part"
        file = os.open(temporary, _CREATE, 0o666, dir_fd=place)
        try:
            content.write_to(file)
            _put_in_place(temporary, name, place, overwrite=overwrite)
        except BaseException:
            os.unlink(temporary, dir_fd=place)
            raise
        finally:
            os.close(file)


def _put_in_place(temporary: str, name: str, folder: int, *, overwrite: bool) -> None:
    if overwrite:
        with suppress(FileNotFoundError):
            if stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode) in _OF_OTHERS:
                raise OSError(errno.EINVAL, "it is not a regular file")
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.unlink(temporary, dir_fd=folder)


@contextmanager
def _explained(path: LocalPath) -> Iterator[None]:
    shown = printable(os.fspath(path))
    try:
        yield
    except FileNotFoundError:
        raise UnknownFileError(shown) from None
    except FileExistsError:
        raise FileTakenError(shown) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FileRefusedError(shown, reason) from None


class _Walk:
    """Goes down a path as the kernel would, one part at a time, and judges each link that it meets."""

    def __init__(self, mounts: Sequence[Mount]) -> None:
        sources = [Path(mount.source) for mount in mounts if mount.writable]
        self._shared = {_identity(source.stat()) for source in sources if source.exists()}
        self._below_shared = False
        self._links = 0

    @contextmanager
    def to(self, path: LocalPath) -> Iterator[int]:
        """An O_PATH descriptor of what the path leads to."""
        parts = deque(str(Path.cwd() / path).split("/"))
        place = os.open("/", _PLACE)
        try:
            while parts:
                part = parts.popleft()
                if part in ("", "."):
                    continue
                inner = os.open(part, _PLACE, dir_fd=place)
                target = self._link(inner)
                if target is None:
                    place, inner = inner, place
                else:
                    parts.extendleft(reversed(target.split("/")))
                os.close(inner)
                if target is not None and target.startswith("/"):
                    os.close(place)
                    place = os.open("/", _PLACE)
            yield place
        finally:
            os.close(place)

    def _link(self, place: int) -> str | None:
        """Where a link leads; None for anything else. Raises OSError for one that is not followed."""
        status = os.fstat(place)
        if not stat.S_ISLNK(status.st_mode):
            self._below_shared |= _identity(status) in self._shared
            return None
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, "too many symbolic links")
        if self._below_shared or status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.ELOOP, "the way to it is a symbolic link that another user may have made")
        return os.readlink("", dir_fd=place)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
