"""Says that a history in a file is being written: a lock that the kernel gives back however its holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cenote_security.errors import HistoryTakenError, HistoryUnavailableError


class WriterLock:
    """Beside the database, not on it: SQLite has locks of its own there."""

    def __init__(self, database: Path) -> None:
        """Makes the database's folder, and the database private to its owner.

        Raises HistoryTakenError when somebody holds it, HistoryUnavailableError.
        """
        try:
            database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._database, self._known = database, _identity(os.fstat(file))
            os.close(file)
            self._file = os.open(f"{database}.writer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HistoryUnavailableError(str(database), error.strerror or str(error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise HistoryTakenError(str(database)) from None

    def check_file(self) -> None:
        """Whether the database still lies under its name: SQLite goes on writing into one that was removed.

        Raises HistoryUnavailableError.
        """
        try:
            found = _identity(self._database.stat())
        except OSError as error:
            raise HistoryUnavailableError(str(self._database), error.strerror or str(error)) from error
        if found != self._known:
            raise HistoryUnavailableError(
                str(self._database), "another file was put in its place; put the former one back"
            )

    def close(self) -> None:
        """Closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
