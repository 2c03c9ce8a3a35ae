"""Copies of a runtime's checkpoints, taken beside its writer, and put into an empty folder.

The files never change once they are there; only `sweep` removes them, those that the newest checkpoints do not need.
So what was listed and could be opened is whole: if a file of a listing is gone, there is a newer checkpoint, and the
next listing has what that one needs.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Final

from cenote_worker.checkpoints.errors import StoreFailedError
from cenote_worker.checkpoints.folder import Folder
from cenote_worker.checkpoints.store import failures, whole_manifest

_LISTINGS: Final = 100
"""A runtime that stores a checkpoint for each is faster than its copy, and will be so for ever."""


def copy_checkpoints(folder: Folder, add: Callable[[int, IO[bytes], int], None]) -> int:
    """add: gets each file's number, the open file, and its size. Returns the number of the newest one; 0 for none.

    Files that are not needed may be among them. Raises StoreFailedError, and what `add` raises.
    """
    done = set[int]()
    for _ in range(_LISTINGS):
        with failures(folder.place):
            there = folder.numbers()
        opened = True
        for number in (number for number in there if number not in done):
            try:
                file = _opened(folder, number)
            except FileNotFoundError:
                opened = False
                continue
            with file:
                add(number, file, os.fstat(file.fileno()).st_size)
            done.add(number)
        if opened:
            return max(there, default=0)
    raise StoreFailedError(folder.place, "its checkpoints change faster than they can be copied; try again")


def _opened(folder: Folder, number: int) -> IO[bytes]:
    """A file that stays readable when it is removed. Raises FileNotFoundError, StoreFailedError."""
    if (lent := folder.lend(number)) is not None:
        return open(lent, "rb")
    with ExitStack() as opened:
        spool = opened.enter_context(tempfile.TemporaryFile(prefix="cenote-"))
        try:
            _spool(folder, number, spool)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreFailedError(folder.place, error.strerror or str(error)) from error
        opened.pop_all()
        return spool


def _spool(folder: Folder, number: int, spool: IO[bytes]) -> None:
    at, size = 0, folder.size(number)
    while at < size:
        piece = folder.read(number, at, min(folder.at_once, size - at))
        if not piece:
            raise OSError(errno.EIO, f"checkpoint {number} is shorter than it was listed")
        at += spool.write(piece)
    spool.seek(0)


class CheckpointPlacing:
    """Puts copied files into a folder without checkpoints, which a writer can go on from when it is closed."""

    def __init__(self, folder: Folder) -> None:
        """Raises StoreFailedError, also for a folder that a writer has."""
        self._folder = folder
        self._numbers = list[int]()
        self._claim(0)

    def put(self, number: int, content: IO[bytes]) -> None:
        """Raises StoreFailedError."""
        with failures(self._folder.place):
            draft = self._folder.draft(number)
            try:
                while piece := content.read(self._folder.at_once):
                    draft.write(piece)
                draft.publish()
            finally:
                draft.discard()
        self._numbers.append(number)

    def close(self) -> str:
        """Later writers get fences above all that the files name. Returns why the newest checkpoint cannot be used,
        as where it was damaged before it was copied; empty where it can. Raises StoreFailedError.
        """
        with failures(self._folder.place):
            found = [whole_manifest(self._folder, number) for number in sorted(self._numbers)]
        self._claim(max((manifest.fence for manifest in found if manifest), default=0))
        if not found:
            return ""
        newest = found[-1]
        if newest is None:
            return f"checkpoint {max(self._numbers)} is damaged"
        missing = sorted(newest.files.difference(self._numbers))
        return f"checkpoint {newest.number} needs the files {missing}, which are missing" if missing else ""

    def _claim(self, above: int) -> None:
        with failures(self._folder.place):
            if self._folder.claim(above) is None:
                raise StoreFailedError(self._folder.place, "another process writes it")
            self._folder.release()
