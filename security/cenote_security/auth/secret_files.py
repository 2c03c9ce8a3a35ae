"""Files that hold a secret: made whole and private, read only while they are private."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_security.errors import SecretFileError

_MAX_BYTES: Final = 2**20
"""Tokens, keys and certificate chains are a few kilobytes; something larger is a wrong path."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def create_secret_file(path: Path, content: bytes) -> None:
    """Writes a new file that its owner alone may read (0600). It appears whole or not at all.

    It is written under a name of its own and linked to the wanted one, which, like O_EXCL and unlike a rename, fails
    when the name is taken. A missing folder is made, a private one.
    Raises SecretFileError when there is a file of that name already, or the system refuses.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        make_private_folder(path.parent)
        _write(beside, content, 0o600)
        _link(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise SecretFileError(path, f"it cannot be written: {error.strerror}") from None


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Writes a file in place of one that may be there; readers see the old one or the new, whole.

    mode: by default 0600, private. Raises SecretFileError when the system refuses.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        _write(beside, content, mode)
        beside.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise SecretFileError(path, f"it cannot be written: {error.strerror}") from None


def make_private_file(path: Path) -> bool:
    """Makes an empty file (0600) where there is none, for a library that opens it by name. Whether it was made.

    The file is never open here. Locks of `fcntl` belong to a process, and closing any descriptor of a file releases
    all that the process holds on it: SQLite would lose those of its other connections, and a second process would
    take itself for the only user of the database (https://www.sqlite.org/howtocorrupt.html, 2.2). Raises OSError.
    """
    try:
        os.mknod(os.path.realpath(path), 0o600 | stat.S_IFREG)
    except FileExistsError:
        return False
    return True


def read_secret_file(path: Path) -> bytes:
    """The content of a private file.

    Raises SecretFileError when it cannot be read, and for what `privacy_problem` says. What is checked is the open
    file, so it cannot be replaced in between; symbolic links are followed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not waiting for a FIFO's other end
    except OSError as error:
        raise SecretFileError(path, f"it cannot be read: {error.strerror}") from None
    try:
        if problem := privacy_problem(os.fstat(fd), os.geteuid()):
            raise SecretFileError(path, problem)
        content = os.read(fd, _MAX_BYTES + 1)  # of an ordinary file, all that there is
    finally:
        os.close(fd)
    if len(content) > _MAX_BYTES:
        raise SecretFileError(path, f"it is larger than {_MAX_BYTES} bytes, so it is not what was meant")
    return content


def kept_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a private file; if there is none, it is made first. Of two makers at once, one wins for both."""
    if not path.exists():
        try:
            create_secret_file(path, make())
        except SecretFileError:
            if not path.exists():
                raise
    return read_secret_file(path)


def make_private_folder(path: Path) -> None:
    """Those above it that are missing are private too, as the XDG specification asks for: `mkdir` makes them as the
    umask says, and who may write there puts another folder in the place of this one. Raises OSError.
    """
    for folder in reversed((path, *path.parents)):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a file, not a folder", str(path)) from None


def sync_folder(folder: Path) -> None:
    """Makes names in a folder outlast a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _link(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        raise SecretFileError(
            path, "it exists already; remove it first if nothing needs it any more"
        ) from None
    finally:
        beside.unlink()


def _write(path: Path, content: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)  # whatever the umask made of it
            file.write(content)
            file.flush()
            os.fsync(fd)
    except BaseException:
        path.unlink()
        raise


def privacy_problem(status: os.stat_result, user: int) -> str:
    """Why a file with this status is no place for a secret of this user; empty when it is one.

    A file of root's may be readable by its group when the user is not root: so Kubernetes mounts secrets, and so
    PostgreSQL takes its keys. Only root decides who is in the group.
    """
    if not stat.S_ISREG(status.st_mode):
        return "it is not an ordinary file"
    if status.st_uid not in (user, 0):
        return f"it belongs to another user (uid {status.st_uid}), who can change it"
    allowed = stat.S_IRGRP if status.st_uid == 0 != user else 0
    if status.st_mode & _OTHERS & ~allowed:
        mode = stat.S_IMODE(status.st_mode)
        return f"others may read or write it (mode {mode:04o}); run chmod 600, and change the secret if it leaked"
    return ""
