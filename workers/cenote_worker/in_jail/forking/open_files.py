"""Where the process's open files stand.

A copy shares each open file with the original, its position too: what one reads, the other will not see. A reader in
the middle of a file would then go on in the wrong place, and nothing would tell.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_FOLDER = "/proc/self/fd"
_limits = resource.getrlimit
_listdir, _fstat, _lseek = os.listdir, os.fstat, os.lseek

Positions = Mapping[int, "Position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """file: device and inode, by which the file is known again. at: bytes from its beginning."""

    file: tuple[int, int]
    at: int


def descriptors() -> Iterable[int]:
    """The numbers of all open ones, and some that are not."""
    try:
        return map(int, _listdir(_FOLDER))
    except PermissionError:  # at `landlock`
        return range(_limits(resource.RLIMIT_NOFILE)[0])


def files() -> frozenset[tuple[int, int]]:
    """Device and inode of all that is open."""
    found = set[tuple[int, int]]()
    for number in descriptors():
        with suppress(OSError):
            status = _fstat(number)
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def remember() -> Positions:
    """The positions of all regular files, by descriptor. To be called right before a fork."""
    return {number: found for number in descriptors() if (found := _position(number))}


def position(number: int, status: os.stat_result) -> Position:
    """status: of a regular file or a folder that is open under this number. Raises OSError."""
    return Position(file=(status.st_dev, status.st_ino), at=_lseek(number, 0, os.SEEK_CUR))


def put_back(positions: Positions) -> list[int]:
    """In a copy, when it is its turn. Gives the descriptors that are another file's by now, or nobody's."""
    return [number for number, position in positions.items() if not _go_to(number, position)]


def _position(number: int) -> Position | None:
    with suppress(OSError):
        status = _fstat(number)
        if stat.S_ISREG(status.st_mode):
            return position(number, status)
    return None


def _go_to(number: int, position: Position) -> bool:
    with suppress(OSError):
        status = _fstat(number)
        if (status.st_dev, status.st_ino) == position.file:
            _lseek(number, position.at, os.SEEK_SET)
            return True
    return False
