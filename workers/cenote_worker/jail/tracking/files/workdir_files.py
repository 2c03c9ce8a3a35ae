"""The files of the working directory, as they are and as a step has left them."""

from __future__ import annotations

import fcntl
import os
import resource
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import xxhash

from cenote_worker.execution.trace import ABSENT, TREE, Location, Version, file, key_of
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.files.file_locks import reading
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MOST: Final = 2_000
"""Files that are looked at. In a larger directory every step may have changed any file."""

_PIECE = 1 << 22
_TICK = 20_000_000
"""Nanoseconds: the kernel's clock for files moves every 4 to 10 ms."""

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
"""The modes that a jail's umask gives to new ones, and the modes of those from clients."""

KEPT_FILES: Final = ".cenote-versions"
"""The temporary folder in which versions of the working directory are kept: no step has files there."""

_CACHES: Final = frozenset((".cache", ".matplotlib"))
"""The folders of `XDG_CACHE_HOME` and `MPLCONFIGDIR` in a jail."""

_SKIPPED: Final = frozenset(("__pycache__", KEPT_FILES))

LINK: Final = "link "
"""How the version of a link begins."""

SEVERAL_NAMES: Final = "by several names"
"""In versions of such files: a write to one of the names changes all of them."""

_DESCRIPTORS: Final = "/proc/self/fd"
_MAPS: Final = "/proc/self/maps"
_NOT_ANY_MORE: Final = " (deleted)"
_IN_MEMORY: Final = "/memfd:"

_control, _listdir = fcntl.fcntl, os.listdir
_listxattr = os.listxattr
_readlink, _getcwd, _stat = os.readlink, os.getcwd, os.stat
_wall = time.time_ns
_lstat, _pread = os.lstat, os.pread
_scandir, _join = os.scandir, os.path.join

Mark = tuple[int, int, int, int, int]
"""Device and inode, size, and both times of change: a file with the same mark has the same content."""


class FolderChanges(Protocol):
    """What is known of the changes below a folder that is watched; see `FolderWatch`."""

    def moment(self, entries: int) -> int | None: ...

    def changed_since(self, moment: int) -> Collection[str] | None: ...


class WorkdirFiles:
    """The files below one folder."""

    def __init__(self, top: str, changes: FolderChanges | None = None) -> None:
        """changes: None if nothing watches the folder."""
        self._top = os.path.realpath(top)
        self._changes = changes
        self._moment: int | None = None
        self._marks: dict[str, Mark] | None = {}
        """Those of the last look, at that moment."""
        self._versions_of: tuple[object, dict[str, Version]] | None = None
        """Marks, and the versions of all files with these, if no content could change without its mark."""
        self._step: tuple[object, Collection[str]] = None, ()
        """The marks of the look before, and the paths that have changed between the two, if these are known."""
        self._temporary = tuple(f"{os.path.realpath(each)}/" for each in (tempfile.gettempdir(), "/dev/shm"))
        self.left = set[str]()
        """Temporary files that steps have written: they exist only here, and no kept state restores them."""
        self.temporary_marks: dict[str, Mark] | None = {}
        """Their marks at the last look for changes without an audit event."""
        self.may_be_open = True
        """Whether a step may have left a file open since the last look."""
        self.doubted = set[str]()
        """Files whose content is looked at each time, by their paths in locations."""
        self._versions: dict[str, tuple[Mark, Version]] = {}

    def open_now(self) -> list[str]:
        """Paths of files that the process has open and can read from: of a deleted file, the former path; of a
        folder, that of the whole directory."""
        self.doubted = set()
        if not self.may_be_open:
            return []
        found = [(each, place) for each in _descriptors() if (place := self._place_of(each))]
        self.may_be_open = bool(found)
        if written := {place for each, place in found if _way_of(each) == os.O_RDWR}:
            self.doubt(written & mapped if (mapped := _mapped()) is not None else written)
        return [place for _, place in found]

    def doubt(self, places: Iterable[str]) -> None:
        """Marks files that may be written to through memory, which leaves no trace in the metadata. places: paths as
        programs give them."""
        located = [self.location(place) for place in places]
        self.doubted |= {key_of(each) for each in located if each is not None}

    def _place_of(self, descriptor: int) -> str:
        """Empty for what is neither a readable file nor a folder."""
        try:
            kind = _stat(descriptor).st_mode
            if stat.S_ISDIR(kind):
                return self._top
            if not stat.S_ISREG(kind) or _way_of(descriptor) == os.O_WRONLY:
                return ""
            place = _readlink(f"{_DESCRIPTORS}/{descriptor}")
        except PermissionError:  # at `landlock` the path is unknown
            return self._top
        except OSError:  # the descriptor of the look itself
            return ""
        mine = place.startswith(_IN_MEMORY) or KEPT_FILES in place
        return "" if mine else place.removesuffix(_NOT_ANY_MORE)

    def marks(self) -> dict[str, Mark] | None:
        """The marks of all files by relative path; None when there are too many. The same object as before if nothing
        has changed in a folder that is watched."""
        known = MOST if self._marks is None else len(self._marks)
        moment = None if self._changes is None else self._changes.moment(known)
        if moment is None or moment != self._moment:
            self._marks = self._next_marks(moment)
        self._moment = moment
        return self._marks

    def _next_marks(self, moment: int | None) -> dict[str, Mark] | None:
        """Looks at what has changed since the last look, or at all files."""
        before, self._step = self._marks, (None, ())
        if moment is not None and self._moment is not None and before is not None:
            assert self._changes is not None
            paths = self._changes.changed_since(self._moment)
            after = None if paths is None else self._changed_marks(before, paths)
            if after is not None and paths is not None and len(after) <= MOST:
                self._step = before, paths
                return after
        return _marks(self._top, [""])

    def _changed_marks(self, marks: dict[str, Mark], paths: Collection[str]) -> dict[str, Mark] | None:
        """The marks with those of these paths, and of the folders that they are in, as they are now. None if one is
        gone."""
        found = dict(marks)
        wanted = [path for path in paths if _SKIPPED.isdisjoint(path.split("/")[:-1])]
        for path in {*wanted, *(path.rpartition("/")[0] for path in wanted)} - {""}:
            try:
                found[path] = _mark(_lstat(_join(self._top, path)))
            except OSError:
                return None
        return found

    def look_at_temporary(self) -> dict[str, Mark] | None:
        """All temporary files by whole path, other than those of the folder; None when there are too many.

        Files that a jail only mounts there, such as an environment in a temporary folder, are on another device.
        """
        found: dict[str, Mark] | None = {}
        for folder in self._temporary:
            marks = _marks("/", [folder], self._top, _device(folder))
            found = None if found is None or marks is None else found | marks
        self.temporary_marks = found
        return found

    def temporary_entries(self) -> dict[str, Version]:
        """By whole path, the entries directly below a temporary folder, with names and sizes of all that is in them.

        Without caches of libraries. One entry for a folder with too many files.
        """
        found = dict[str, Version]()
        for folder in self._temporary:
            marks = _marks("/", [folder], self._top, _device(folder))
            if marks is None:
                found[folder.rstrip("/")] = fresh()
                continue
            within = dict[str, list[tuple[str, int]]]()
            for path, mark in sorted(marks.items()):
                first = path.removeprefix(folder).lstrip("/").partition("/")[0]
                within.setdefault(first, []).append((path, mark[2]))
            for first in within.keys() - _CACHES:
                found[f"{folder}{first}"] = Version(xxhash.xxh3_128_hexdigest(repr(within[first]).encode()))
        return found

    def location(self, path: str) -> Location | None:
        """The location of a path as a program gave it, from its current directory; None for what belongs to no
        step."""
        try:
            whole = os.path.realpath(path)
        except (OSError, ValueError):
            return None
        if whole == self._top:
            return TREE
        inside = whole.startswith(f"{self._top}/")
        return file(whole[len(self._top) + 1 :] if inside else whole)

    def folders(self, key: str) -> list[Location]:
        """The folders of the directory that contain a file, which is given by its path in locations."""
        parts = [] if key.startswith("/") else key.split("/")
        return [file("/".join(parts[:length])) for length in range(len(parts) - 1, 0, -1)]

    def links(self, path: str) -> list[Location]:
        """Links of the folder, or temporary ones, that a path leads through, as a program gave it."""
        place = Path(os.path.normpath(_join(_getcwd(), path)))
        links = [each for each in (place, *place.parents) if each.is_symlink()]
        own = [file(str(each.relative_to(self._top))) for each in links if each.is_relative_to(self._top)]
        return own + [file(str(each)) for each in links if self.is_temporary(str(each))]

    def inside(self, entries: Iterable[object]) -> list[str]:
        """The paths that are in the folder, as prefixes of their contents: empty, or ending with a slash."""
        wholes = [os.path.realpath(entry) for entry in entries if type(entry) is str]
        found = [
            f"{whole}/"[len(self._top) + 1 :] for whole in wholes if f"{whole}/".startswith(f"{self._top}/")
        ]
        return list(dict.fromkeys(found))

    def is_temporary(self, key: str) -> bool:
        """key: a path in locations."""
        return key.startswith(self._temporary)

    def versions(self, marks: Mapping[str, Mark], budget: InspectionBudget) -> dict[str, Version]:
        """The versions of all files with these marks; only new ones are read."""
        former = None if self.doubted else self._versions_of
        if former is not None and former[0] is marks:
            return former[1]
        found, wanted = dict[str, Version](), marks
        if former is not None and former[0] is self._step[0] and marks is self._marks:
            found, wanted = dict(former[1]), {path: marks[path] for path in self._step[1] if path in marks}
        for path, mark in wanted.items():
            known = self._versions.get(path)
            if known is not None and known[0] == mark and path not in self.doubted:
                found[path] = known[1]
            else:
                found[path] = self.version(path, budget)
        self._versions_of = None if self.doubted or self._moment is None else (marks, found)
        return found

    def version(self, key: str, budget: InspectionBudget) -> Version:
        """key: a path in locations."""
        if key == ".":
            return self._tree(budget)
        path = _join(self._top, key)
        try:
            mark = _mark(_lstat(path))
        except (OSError, ValueError):
            self._versions.pop(key, None)
            return ABSENT
        known = self._versions.get(key)
        if known is not None and known[0] == mark and key not in self.doubted:
            return known[1]
        version = _content(path, budget)
        if _wall() - max(mark[2], mark[3]) > _TICK and key not in self.doubted:
            self._versions[key] = mark, version
        else:  # another write within the same tick would leave no trace in the mark
            self._versions.pop(key, None)
        return version

    def _tree(self, budget: InspectionBudget) -> Version:
        marks = self.marks()
        if marks is None:
            return fresh()
        left = {path: self.version(path, budget) for path in self.left}
        return together({**self.versions(marks, budget), **left})


def _descriptors() -> Iterable[int]:
    try:
        return map(int, _listdir(_DESCRIPTORS))
    except PermissionError:  # at `landlock`
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _way_of(descriptor: int) -> int:
    return _control(descriptor, fcntl.F_GETFL) & os.O_ACCMODE


def _mapped() -> set[str] | None:
    """Paths of mapped files that change when this process writes to its memory; None if unknown."""
    try:
        with open(_MAPS, "rb") as lines:
            shared = [line.split(maxsplit=5) for line in lines if line.split(b" ", 2)[1][3:] == b"s"]
    except OSError:  # at `landlock`
        return None
    paths = (os.fsdecode(fields[5].rstrip(b"\n")) for fields in shared if len(fields) > 5)
    return {path.removesuffix(_NOT_ANY_MORE) for path in paths}


def _device(folder: str) -> int | None:
    with suppress(OSError):
        return _stat(folder).st_dev
    return None


def _marks(
    top: str, folders: list[str], without: str = "", device: int | None = None
) -> dict[str, Mark] | None:
    """device: files on another one are left out."""
    found = dict[str, Mark]()
    while folders:
        folder = folders.pop()
        try:
            with _scandir(_join(top, folder)) as entries:
                for entry in entries:
                    path = _join(folder, entry.name) if folder else entry.name
                    status = entry.stat(follow_symlinks=False)
                    if device is not None and status.st_dev != device:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name in _SKIPPED or path == without:
                            continue
                        folders.append(path)
                    found[path] = _mark(status)
        except OSError:  # it went meanwhile, or may not be read
            continue
        if len(found) > MOST:
            return None
    return found


def changed(before: dict[str, Mark] | None, after: dict[str, Mark] | None) -> set[str]:
    """Paths that have changed. A folder changes with its contents, which is not reported."""
    if before is None or after is None:
        return {"."}
    if before is after:
        return set()
    paths = before.keys() | after.keys()
    return {
        path for path in paths if before.get(path) != after.get(path) and not _is_folder(before, after, path)
    }


def together(versions: Mapping[str, Version]) -> Version:
    """One version for a whole directory and the temporary files in it: a reader of the one may see the others."""
    present = {path: version for path, version in versions.items() if version != ABSENT}
    return Version(xxhash.xxh3_128_hexdigest(repr(sorted(present.items())).encode("utf-8", "surrogatepass")))


def _is_folder(before: dict[str, Mark], after: dict[str, Mark], path: str) -> bool:
    return path in before and path in after and before[path][4] == after[path][4] == 1


def _mark(status: os.stat_result) -> Mark:
    if stat.S_ISDIR(status.st_mode):
        return (status.st_ino, 0, status.st_mtime_ns, status.st_ctime_ns, 1)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, 0)


def _content(path: str, budget: InspectionBudget) -> Version:
    try:
        status = _lstat(path)
        if stat.S_ISDIR(status.st_mode):
            return _allowing("folder", status.st_mode, _FOLDER_MODE)
        if stat.S_ISLNK(status.st_mode):
            return Version(f"{LINK}{xxhash.xxh3_64_hexdigest(os.fsencode(_readlink(path)))}")
        if not stat.S_ISREG(status.st_mode) or not budget.allows(status.st_size):
            return fresh()
        return Version(_allowing(_hashed(path), status.st_mode, _FILE_MODE) + _attached(path, status))
    except OSError:
        return fresh()


def _allowing(content: str, mode: int, usual: int) -> Version:
    """The content with its permissions, unless these are the usual ones."""
    allowed = stat.S_IMODE(mode)
    return Version(content if allowed == usual else f"{content} {allowed:o}")


def _attached(path: str, status: os.stat_result) -> str:
    """Other state of a file: further names, and attributes that a user gave it."""
    told = f" {SEVERAL_NAMES} {status.st_ino}" if status.st_nlink > 1 else ""
    given = [each for each in _listxattr(path, follow_symlinks=False) if each.startswith("user.")]
    return f"{told} {given} {status.st_ctime_ns}" if given else told


def _hashed(path: str) -> str:
    digest = xxhash.xxh3_128()
    at = 0
    with reading(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC) as file:
        while piece := _pread(file.number, _PIECE, at):
            digest.update(piece)
            at += len(piece)
    return digest.hexdigest()
