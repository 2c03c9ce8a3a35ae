"""Folders below a top, opened one part after the other, so that no link leads out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_open, _close = os.open, os.close


@contextmanager
def opened(top: str, path: str) -> Iterator[int]:
    """A descriptor of a folder. A part that is a link by now, or gone, is an OSError."""
    folder = _open(top, FOLDER)
    try:
        for part in filter(None, path.split("/")):
            inner = _open(part, FOLDER, dir_fd=folder)
            _close(folder)
            folder = inner
        yield folder
    finally:
        _close(folder)
