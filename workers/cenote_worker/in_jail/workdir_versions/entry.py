"""What a version knows of one path."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

Kind = Literal["file", "folder", "link", "other"]

_FORMAT = 0o170000
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Signature(NamedTuple):
    """Changes whenever a file does. The change time cannot be set by programs, so a forged `mtime` hides nothing.

    ctime_ns: 0 when it may change without its times, see `doubted`.
    """

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Signature:
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )

    def doubted(self) -> Signature:
        """The signature of a file that a process writes to through memory, which leaves no trace in its times."""
        return self._replace(ctime_ns=0)

    def proves(self, other: Signature) -> bool:
        """Whether a file with this signature has the bytes that it had when it had the other one."""
        return self == other and self.ctime_ns != 0

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.mode & _FORMAT, "other")

    @property
    def file(self) -> tuple[int, int]:
        """What two names of one file have in common."""
        return self.device, self.inode


class Entry(NamedTuple):
    """content: the name of a file's bytes in the store, or where a link points. reason: why there is none."""

    signature: Signature
    content: str = ""
    reason: str = ""

    @property
    def kind(self) -> Kind:
        return "other" if self.reason else self.signature.kind


Tree = dict[str, Entry]
"""Entries by path below the top, `""` for the top itself; a folder comes before what is in it. Bytes of a name that
are no UTF-8 are lone surrogates, as everywhere in Python.
"""
TOP = ""


def parent_of(path: str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = path.rpartition("/")
    return folder, name
