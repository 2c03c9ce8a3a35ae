"""Which process is the platform of a state folder: the one that holds a lock there. A pid may have been reused.

The kernel releases the lock when its process ends, however that happens. The content of the file is valid only while
a process holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cenote_security.errors import UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running platform. address: for this machine; empty until it is ready. since: seconds since the epoch.

    elsewhere: the address for clients on other machines, if it differs.
    http: the URL of the HTTP application on this machine; empty without.
    authority: a file with the certificate by which clients verify it; empty without TLS.
    """

    pid: int
    since: float
    address: str = ""
    relayed: bool = False
    authority: str = ""
    elsewhere: str = ""
    http: str = ""


class DaemonLock:
    """Held by a platform for as long as it lives."""

    def __init__(self, path: Path) -> None:
        """Raises UnavailableError when another process holds it."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise runs_already(running_at(path)) from None
        os.ftruncate(self._fd, 0)  # the content that a killed process left

    def write(self, running: Running) -> None:
        """Writes who holds the lock. Readers see the old text, nothing or the new text; nothing means no holder yet.

        Raises UnavailableError where there is no disk space.
        """
        text = json.dumps(asdict(running)).encode()
        try:
            os.ftruncate(self._fd, 0)
            written = os.pwrite(self._fd, text, 0)
        except OSError as error:
            raise UnavailableError(f"{str(self._path)!r} cannot be written: {error.strerror}") from None
        if written != len(text):
            raise UnavailableError(f"{str(self._path)!r} cannot be written: {os.strerror(errno.ENOSPC)}")

    def release(self) -> None:
        """The file stays: if it were unlinked while another process opens it, there could be two locks."""
        fd, self._fd = self._fd, -1  # another file may soon have that number
        os.ftruncate(fd, 0)
        os.close(fd)


def running_at(path: Path) -> Running | None:
    """The holder of the lock; None if there is none, or it has not written the file yet.

    Raises UnavailableError where the file cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(
            f"{str(path)!r} cannot be read: {error.strerror}; if another user made it, as with sudo, "
            f"set XDG_STATE_HOME"
        ) from None
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        return _read(fd)
    finally:
        os.close(fd)


def died_at(path: Path) -> bool:
    """Whether the last holder ended without releasing its lock: the file still has its content."""
    with suppress(OSError):
        return path.stat().st_size > 0 and running_at(path) is None
    return False


def runs_already(running: Running | None) -> UnavailableError:
    if running is None or not running.address:
        return UnavailableError("a platform is just being started or ended here; try again in a moment")
    return UnavailableError(
        f"a platform runs here already, at {running.address} (pid {running.pid}); `cenote status` shows it, "
        f"`cenote down` ends it"
    )


def _read(fd: int) -> Running | None:
    try:
        return Running(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None
