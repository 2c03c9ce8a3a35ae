"""The file of the log that grows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cenote_security.secret_files import sync_folder


class LogFile:
    """Open for its one writer. size: of what was written whole."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """size: where to go on in a file that is there; what follows is cut off. None: a new one. Raises OSError."""
        create = os.O_CREAT | os.O_EXCL if size is None else 0
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o600)
        self.size = size or 0
        self._ragged = size is not None
        if size is None:
            try:
                sync_folder(path.parent)
            except OSError:
                os.close(self._fd)
                path.unlink()  # else it could never be made
                raise

    def write(self, content: bytes) -> None:
        """Adds all of it, or raises OSError and, now or before the next write, takes back the part that was added."""
        self._cut()
        self._ragged = True
        try:
            self._write(content)
        except OSError:
            with suppress(OSError):
                self._cut()
            raise
        self._ragged = False
        self.size += len(content)

    def sync(self) -> None:
        """Raises OSError, and then nobody knows what is on the disk: a second sync would report success."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, content: bytes) -> None:
        written = 0
        while written < len(content):
            written += os.pwrite(self._fd, content[written:], self.size + written)

    def _cut(self) -> None:
        if self._ragged:
            os.ftruncate(self._fd, self.size)
            self._ragged = False
