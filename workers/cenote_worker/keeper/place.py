"""Where a keeper is found: a socket in a folder that is closed to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOCKET = "keeper.socket"


@contextmanager
def address(folder: Path) -> Iterator[str]:
    """A path of the socket that fits into an address of 108 bytes, however long the folder's own is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)
