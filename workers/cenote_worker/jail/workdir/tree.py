"""Every path below a folder as an entry, by metadata alone.

The folder's content is hostile: links in loops, folders that become links meanwhile, names of any bytes, trees of any
depth. Each folder is opened relative to its parent and never through a link; an entry that cannot be read has a
reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Kind = Literal["file", "folder", "link", "other"]

_new = tuple.__new__  # each path of a folder is looked at after a cell that has changed one of them
_FORMAT = 0o170000
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Signature(NamedTuple):
    """Changes whenever a file does. The change time cannot be set by programs, so a forged `mtime` hides nothing.

    ctime_ns: 0 if the content may change without its times, see `doubted`.
    """

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Signature:
        return _new(
            cls,
            (
                status.st_dev,
                status.st_ino,
                status.st_mode,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            ),
        )

    def doubted(self) -> Signature:
        """The signature of a file that a process writes to through memory, which leaves no trace in its times."""
        return self._replace(ctime_ns=0)

    def proves(self, other: Signature) -> bool:
        """Whether a file with this signature has the same bytes as when it had the other one."""
        return self == other and self.ctime_ns != 0

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.mode & _FORMAT, "other")

    @property
    def file(self) -> tuple[int, int]:
        """The device and inode, which all names of a file share."""
        return self.device, self.inode


class PathEntry(NamedTuple):
    """content: the name of a file's bytes in the store, or a link's target. reason: why there is none."""

    signature: Signature
    content: str = ""
    reason: str = ""

    @property
    def kind(self) -> Kind:
        return "other" if self.reason else _KINDS.get(self.signature.mode & _FORMAT, "other")


Tree = dict[str, PathEntry]
"""Entries by path below the top, `""` for the top itself; a folder comes before its contents. Bytes of a name that
are not UTF-8 are lone surrogates, as everywhere in Python.
"""
TOP = ""


def parent_of(path: str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = path.rpartition("/")
    return folder, name


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_open, _close = os.open, os.close


@contextmanager
def opened(top: str, path: str) -> Iterator[int]:
    """A descriptor of a folder. Raises OSError for a part that is a link or is gone."""
    folder = _open(top, FOLDER)
    try:
        for part in filter(None, path.split("/")):
            inner = _open(part, FOLDER, dir_fd=folder)
            _close(folder)
            folder = inner
        yield folder
    finally:
        _close(folder)


MAX_ENTRIES = 50_000
"""A scan takes 4 µs per path, so this is 0.2 s."""

MAX_DEPTH = 64
"""Each level needs a descriptor."""

_open_at, _close_scanned, _scandir, _fstat, _readlink = os.open, os.close, os.scandir, os.fstat, os.readlink
_stat = os.stat


class TooManyEntries(Exception):
    """More paths than a version can have."""


def scan(top: str) -> Tree:
    """All entries, without the contents of files. Raises TooManyEntries, and OSError if the top cannot be opened."""
    folder = _open_at(top, FOLDER)
    try:
        status = _fstat(folder)
        tree: Tree = {TOP: PathEntry(Signature.of(status))}
        for path, entry in _below(folder, "", status.st_dev, 1):
            tree[path] = entry
            if len(tree) > MAX_ENTRIES:
                raise TooManyEntries
        return tree
    finally:
        _close_scanned(folder)


def entry_at(top: str, path: str) -> PathEntry:
    """The entry of one path. Raises OSError when there is none, or a part of the path is a link."""
    if path == TOP:
        with opened(top, TOP) as folder:
            return PathEntry(Signature.of(_fstat(folder)))
    folder_path, name = parent_of(path)
    with opened(top, folder_path) as folder:
        signature = Signature.of(_stat(name, dir_fd=folder, follow_symlinks=False))
        return (
            PathEntry(signature) if signature.kind in ("file", "folder") else _leaf(name, signature, folder)
        )


def _below(folder: int, prefix: str, device: int, depth: int) -> Iterator[tuple[str, PathEntry]]:
    with _scandir(folder) as found:
        for item in found:
            try:
                signature = Signature.of(item.stat(follow_symlinks=False))
            except OSError:  # it is gone again
                continue
            path, kind = prefix + item.name, signature.kind
            if kind == "file":
                yield path, PathEntry(signature)
            elif kind == "folder":
                yield from _inside(item.name, path, signature, folder, device, depth)
            else:
                yield path, _leaf(item.name, signature, folder)


def _leaf(name: str, signature: Signature, folder: int) -> PathEntry:
    if signature.kind == "other":
        return PathEntry(signature, reason="it is neither file, folder nor link")
    try:
        return PathEntry(signature, content=_readlink(name, dir_fd=folder))
    except OSError as error:
        return PathEntry(signature, reason=error.strerror or str(error))


def _inside(
    name: str, path: str, signature: Signature, parent: int, device: int, depth: int
) -> Iterator[tuple[str, PathEntry]]:
    if signature.device != device:
        yield path, PathEntry(signature, reason="it is a mount")
        return
    if depth == MAX_DEPTH:
        yield path, PathEntry(signature, reason=f"it is more than {MAX_DEPTH} folders deep")
        return
    try:
        folder = _open_at(name, FOLDER, dir_fd=parent)
    except OSError as error:
        yield path, PathEntry(signature, reason=error.strerror or str(error))
        return
    try:
        status = _fstat(folder)
        if status.st_dev == device:
            yield path, PathEntry(Signature.of(status))
            yield from _below(folder, path + "/", device, depth + 1)
    finally:
        _close_scanned(folder)
