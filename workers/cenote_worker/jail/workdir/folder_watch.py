"""What may have changed below a folder, at a cost that does not depend on the number of files there.

The kernel's own notices (inotify) report each write, and each file that is opened. They do not report writes to
memory that is mapped from a file, nor asynchronous ones; both need a file that is open. So the metadata of files that
may be open are compared at each look, as those of all files would be without a watch. A file that was opened counts
as open until no process can have it: this one has no descriptor of it, and no other process runs. Frozen copies of
this process do not count: they run nothing.

A notice names the path by which a file was changed, and a file with several names changes by all of them. So which
paths have changed is known only while no file has two names, and nothing was moved or removed: a name that is gone
may have been the second one.

For jails whose folder is a mount of its own, so that no file in it has a further name elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.process.proc_info import open_files, shared_files
from cenote_worker.jail.process.process_names import is_another_process_running
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

FEW: Final = 32
"""Paths below which no watch is made: to look at so many takes half a millisecond, and of watches a user has 128."""

_MOST_FOLDERS: Final = 256
"""Each is a watch, and a line of the text that shows that the watches are still there."""

_MODIFY, _ATTRIB, _CLOSE_WRITE, _OPEN = 0x2, 0x4, 0x8, 0x20
_MOVED_TO, _CREATE, _DELETE = 0x80, 0x100, 0x200
_MOVED: Final = 0x40 | _MOVED_TO
_ITSELF_GONE: Final = 0x400 | 0x800
_WANTED: Final = _MODIFY | _ATTRIB | _CLOSE_WRITE | _OPEN | _MOVED | _CREATE | _DELETE | _ITSELF_GONE
_ONLY_THE_FOLDER: Final = 0x0100_0000 | 0x0200_0000
"""`IN_ONLYDIR` and `IN_DONT_FOLLOW`."""

_INCOMPLETE: Final = _ITSELF_GONE | 0x2000 | 0x4000 | 0x8000
"""Beside these: unmounted, overflow, and a watch that has ended."""

_IS_FOLDER: Final = 0x4000_0000
_HIGH: Final = 400
"""A program's own descriptors keep the numbers that they would have without this one."""

_EVENT: Final = struct.Struct("=iIII")
_PIECE: Final = 1 << 16

_lstat, _read, _close, _fcntl, _scandir = os.lstat, os.read, os.close, fcntl.fcntl, os.scandir
_open = os.open

Mark = tuple[int, int, int, int]


class FolderWatch:
    """The watch of one process. It is made when a folder has become large, and again when it has lost track."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._number = 0
        self._descriptor = -1
        self._shown = b""
        """What the kernel shows of the descriptor: a cell may close it, and open another under its number."""
        self._news = select.poll()
        self._folders: dict[int, str] = {}
        self._open: dict[str, Mark | None] = {}
        """Files that a process may have open, by path below the top, with their metadata at the last look."""
        self._changed: dict[str, int] = {}
        """Paths that have changed since the first known moment, with the moment of the last change, in that order."""
        self._known_from = 0
        """The first moment since which it is known which paths have changed."""
        self._created: set[str] = set()
        """Files made or renamed since the last look."""
        self._has_links = False
        """Whether a file may have several names."""
        self._is_complete = False
        self._is_impossible = False

    def moment(self, entries: int) -> int | None:
        """A number that is the same as before only if nothing below the folder can have changed since; None if that
        is unknown. Ask first, then look: what changes meanwhile has a later number.

        entries: how many paths there are, as far as the caller knows.
        """
        if self._is_impossible:
            return None
        try:
            if not self._is_watching() and (entries < FEW or not self._begin()):
                return None
            self._drain()
            self._look_at_open_ones()
            self._look_at_new_ones()
            if not self._is_complete and not self._begin():
                return None
            return None if shared_files() else self._number
        except FileNotFoundError:  # a folder went meanwhile
            self.end()
            return None
        except OSError:  # all instances or watches of the user are taken, or a folder cannot be read
            self._is_impossible = True
            self.end()
            return None

    def changed_since(self, moment: int) -> Collection[str] | None:
        """The paths below the top that may have changed between an answer of `moment` and its latest one: no other
        ones have. The folders of these may have new times. None if that is unknown."""
        if moment < self._known_from or self._has_links:
            return None
        return list(takewhile(lambda path: self._changed[path] > moment, reversed(self._changed)))

    def end(self) -> None:
        """Called in a copy of the process, too: the notices in its queue are for the original."""
        if self._descriptor >= 0 and self._is_ours():
            self._news.unregister(self._descriptor)
            _close(self._descriptor)
        self._descriptor, self._is_complete = -1, False
        self._news = select.poll()

    def _is_watching(self) -> bool:
        return self._is_complete and self._is_ours()

    def _is_ours(self) -> bool:
        return _shown(self._descriptor) == self._shown

    def _begin(self) -> bool:
        """Whether all changes from now on are noticed."""
        self.end()
        self._lose_track()
        if is_another_process_running():  # it may have files open already
            return False
        first = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._descriptor = _fcntl(first, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        finally:
            _close(first)
        self._news.register(self._descriptor, select.POLLIN)
        self._folders, self._has_links = {}, False
        try:
            files = list(self._walk(""))
        finally:
            self._shown = _shown(self._descriptor)
        # Reading the folders was to be noticed, too.
        self._is_impossible = len(self._folders) > _MOST_FOLDERS or not self._news.poll(0)
        if self._is_impossible or is_another_process_running():
            self.end()
            return False
        opened = {inode for _, inode in open_files()}
        self._open = {path: None for path, inode in files if inode in opened}
        self._is_complete = True
        self._drain()
        return True

    def _walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Watches the folders, each before its entries are read. Gives the path and inode of each file."""
        place = f"{self._top}/{prefix}"
        self._folders[libc.inotify_add_watch(self._descriptor, place, _WANTED | _ONLY_THE_FOLDER)] = prefix
        inner = list[str]()
        with _scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append(f"{prefix}{entry.name}/")
                else:
                    self._has_links = self._has_links or entry.stat(follow_symlinks=False).st_nlink > 1
                    yield f"{prefix}{entry.name}", entry.inode()
        for each in inner:
            if len(self._folders) > _MOST_FOLDERS:
                return
            yield from self._walk(each)

    def _drain(self) -> set[str]:
        """Reads the notices. Returns the files that were opened."""
        opened = set[str]()
        while self._news.poll(0):
            data = _read(self._descriptor, _PIECE)
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                if mask & _INCOMPLETE:
                    self._is_complete = False
                elif mask & _IS_FOLDER:
                    self._note_folder(mask)
                else:
                    path = self._folders.get(watch, "") + os.fsdecode(name)
                    if mask & _OPEN:
                        opened.add(path)
                    else:
                        self._note(mask, path)
        for path in opened:
            self._open.setdefault(path, None)
        return opened

    def _note_folder(self, mask: int) -> None:
        if mask & (_CREATE | _DELETE | _MOVED):
            self._is_complete = False  # what is in it is not watched, or was known by another path
        elif mask & ~(_OPEN | _IS_FOLDER):
            self._lose_track()  # what is in it may be out of reach now

    def _note(self, mask: int, path: str) -> None:
        if mask & (_CREATE | _MOVED_TO):
            self._created.add(path)
        if mask & (_MOVED | _DELETE):
            self._lose_track()
            if path in self._open:
                self._is_complete = False  # it may be open by a name that is unknown here
            return
        self._note_change(path)

    def _note_change(self, path: str) -> None:
        self._number += 1
        self._changed.pop(path, None)
        self._changed[path] = self._number

    def _lose_track(self) -> None:
        """Something has changed, and it is unknown which paths have."""
        self._number += 1
        self._known_from = self._number
        self._changed.clear()

    def _look_at_new_ones(self) -> None:
        found = [_status_of(f"{self._top}/{path}") for path in self._created]
        self._created.clear()
        names = [0 if each is None else each.st_nlink for each in found]
        self._has_links = self._has_links or max(names, default=0) > 1
        # What is gone again may have been a second name, by which another file was changed.
        if any(number != 1 for number in names):
            self._lose_track()

    def _look_at_open_ones(self) -> None:
        if not self._open:
            return
        if not is_another_process_running():
            ours = open_files()
            # What was opened after these two looks is among the notices now.
            since = self._drain()
            for path in self._open.keys() - since:
                status = _status_of(f"{self._top}/{path}")
                if status is None or (status.st_dev, status.st_ino) not in ours:
                    del self._open[path]
        for path, before in self._open.items():
            mark = _mark(_status_of(f"{self._top}/{path}"))
            if mark != before:
                self._open[path] = mark
                self._note_change(path)


def _status_of(path: str) -> os.stat_result | None:
    with suppress(OSError):
        return _lstat(path)
    return None


def _mark(status: os.stat_result | None) -> Mark:
    if status is None:
        return (0, 0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _shown(descriptor: int) -> bytes:
    """What the kernel shows of a descriptor: of ours, each watched folder."""
    if descriptor < 0:
        return b""
    try:
        file = _open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it is closed
        return b""
    try:
        return b"".join(iter(lambda: _read(file, _PIECE), b""))
    finally:
        _close(file)
