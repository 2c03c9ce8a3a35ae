"""The file that says how far the log has come."""

from __future__ import annotations

import os
from pathlib import Path

from cenote.gateway.audit.chain import START, Mark
from cenote.gateway.audit.folder import HEAD, log_files
from cenote.gateway.audit.head import SLOT_BYTES, head_slot, read_head
from cenote.gateway.errors import AuditBrokenError
from cenote_security.secret_files import create_secret_file


class HeadFile:
    """Open for its one writer. mark: what it says."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Makes it for a log without files. Raises AuditBrokenError when it was not signed with this key; OSError."""
        path = folder / HEAD
        if not path.exists() and not log_files(folder):
            create_secret_file(path, head_slot(START, key).ljust(2 * SLOT_BYTES, b" "))
        found = read_head(path.read_bytes(), key) if path.exists() else None
        if found is None:
            raise AuditBrokenError(folder, "its head is missing, or was not signed with this key")
        self.mark, self._slot = found
        self._key = key
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def advance(self, mark: Mark) -> None:
        """Says a new mark, on the disk when it returns. Raises OSError, and then either mark may be said."""
        slot = 1 - self._slot
        os.pwrite(self._fd, head_slot(mark, self._key), slot * SLOT_BYTES)
        os.fdatasync(self._fd)
        self.mark, self._slot = mark, slot

    def close(self) -> None:
        os.close(self._fd)
