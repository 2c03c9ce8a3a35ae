"""Restores a folder: extra files are removed, missing ones are made, and files in place stay untouched.

Single paths of a version can be restored too, if no other process would notice.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.jail.workdir.tree import TOP, PathEntry, Signature, Tree, opened, parent_of
from cenote_worker.jail.workdir.version_store import VersionStore
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


class NotBrought(Exception):
    """Something could not be restored; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Files that the process has open or mapped: their users keep that very file when another one takes its name.
    opened: devices and inodes. mapped: inodes, and paths, since systems differ in which of the two is reliable."""

    opened: Collection[tuple[int, int]]
    mapped: Collection[int]
    paths: Collection[str]

    def has(self, path: str, signature: Signature) -> bool:
        """path: absolute."""
        return path in self.paths or signature.file in self.opened or signature.inode in self.mapped


def wanted(version: Tree, paths: Iterable[str]) -> Tree:
    """The wanted entries of these paths, in the order in which they are to be made. Raises NotBrought.

    Folders come first. Files come in reverse order of the scan: a file system in memory lists the newest first.
    """
    names = Counter(entry.signature.file for entry in version.values() if entry.kind == "file")
    asked = set(paths)
    for path in asked:
        entry = version.get(path)
        if entry is None:
            _check_absent(version, path)
        elif entry.kind == "other":
            raise NotBrought(entry.reason)
        elif entry.kind == "file" and names[entry.signature.file] > 1:
            raise NotBrought("it has several names")
    found = {path: entry for path, entry in version.items() if path in asked}
    folders = {path: entry for path, entry in found.items() if entry.kind == "folder"}
    return folders | {path: found[path] for path in reversed(found) if path not in folders}


def _check_absent(version: Tree, path: str) -> None:
    """A path may be missing in a version because its folder could not be stored."""
    while path != TOP:
        path, _ = parent_of(path)
        if (entry := version.get(path)) is not None:
            if entry.kind == "other":
                raise NotBrought(f"of `{path}` no version has anything: {entry.reason}")
            return


def present(
    tree: Tree, target: Tree, paths: Iterable[str], links: Collection[str], top: str, used: InUse
) -> Tree:
    """The current entries of these paths, for TreeRestore. Raises NotBrought.

    A file is overwritten in place, so that it keeps its position in its folder; but not one of those with further
    names, `links`, whose other names would change, too.
    """
    asked = set(paths)
    for path in asked:
        entries = [entry for entry in (tree.get(path), target.get(path)) if entry is not None]
        if any(used.has(f"{top}/{path}", entry.signature) for entry in entries):
            raise NotBrought("a process has it open")
    found = {path: entry for path, entry in tree.items() if path in asked}
    return {path: _as_seen(entry, target.get(path), path in links) for path, entry in found.items()}


def _as_seen(there: PathEntry, wanted: PathEntry | None, linked: bool) -> PathEntry:
    other = there.signature._replace(inode=0, ctime_ns=0)
    if wanted is not None and wanted.kind == there.kind == "file" and not linked:
        other = other._replace(device=wanted.signature.device, inode=wanted.signature.inode)
    return there._replace(signature=other)


_fstat = os.fstat

_REWRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ACCESSIBLE = 0o700


class TreeRestore:
    """One run. present: the current tree. target: the wanted one."""

    def __init__(self, top: str, store: VersionStore, present: Tree, target: Tree) -> None:
        self._top, self._store = top, store
        self._present, self._target = dict(present), target
        self._problems: dict[str, str] = {}
        self._links: dict[tuple[int, int], str] = {}
        self.changed = 0

    def run(self) -> dict[str, str]:
        """Returns the paths that could not be restored, with reasons."""
        mask = os.umask(0)  # if modes cannot be changed, a file is at least created with its own
        try:
            self._open_folders()
            self._give_names_back()
            for path in reversed(self._present):  # contents come after their folder, so are removed before it
                if path not in self._target or self._is_another_kind(path):
                    self._attempt(path, self._remove)
            for path, wanted in self._target.items():
                if not self._is_in_place(path, wanted):
                    self._attempt(path, self._make)
            for path in reversed(self._target):
                if self._target[path].kind == "folder":
                    self._attempt(path, self._finish_folder)
        finally:
            os.umask(mask)
        return self._problems

    def _attempt(self, path: str, step: Callable[[str, str, int], bool]) -> None:
        """One step at one path, in its folder. A failure is a problem of that path alone."""
        folder_path, name = parent_of(path)
        try:
            with opened(self._top, folder_path) as folder:
                self.changed += step(path, name or ".", folder)
        except OSError as error:
            self._problems.setdefault(path, error.strerror or str(error))

    # -- what is there --

    def _open_folders(self) -> None:
        """Makes read-only folders writable; they get their mode back at the end. Those that cannot be changed fail
        later."""
        for path, entry in self._present.items():
            if entry.kind == "folder" and entry.signature.mode & _ACCESSIBLE != _ACCESSIBLE:
                with suppress(OSError), opened(self._top, path) as folder:
                    os.chmod(folder, _ACCESSIBLE)  # noqa: PTH101

    def _give_names_back(self) -> None:
        """Gives a renamed file its old name: a process that has it open keeps this very file."""
        names = {entry.signature.file: path for path, entry in self._present.items() if entry.kind == "file"}
        for path, wanted in self._target.items():
            there, name = self._present.get(path), names.get(wanted.signature.file)
            if wanted.kind != "file" or name is None or (there is not None and there.kind != "file"):
                continue
            if there is None or there.signature.file != wanted.signature.file:
                folder_path, own = parent_of(path)
                with suppress(OSError), opened(self._top, folder_path) as folder:  # else another file is made
                    self._link(name, own, folder)
                    self._present[path] = self._present[name]

    def _is_another_kind(self, path: str) -> bool:
        wanted, there = self._target[path], self._present[path]
        return wanted.kind != "other" and wanted.kind != there.signature.kind

    def _remove(self, path: str, name: str, folder: int) -> bool:
        if stat.S_ISDIR(self._present[path].signature.mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
        return True

    # -- what is to be --

    def _is_in_place(self, path: str, wanted: PathEntry) -> bool:
        there = self._present.get(path)
        if there is None:
            return False
        if wanted.kind == "file":
            self._links.setdefault(wanted.signature.file, path)
            return there.signature.proves(wanted.signature)
        return there.kind == wanted.kind == "folder"

    def _make(self, path: str, name: str, folder: int) -> bool:
        wanted, there = self._target[path], self._present.get(path)
        match wanted.kind:
            case "folder":
                os.mkdir(name, _ACCESSIBLE, dir_fd=folder)
                return True
            case "link":
                return _make_link(wanted, name, folder, there)
            case "file":
                self._make_file(path, name, folder)
                return True
            case "other":
                self._problems[path] = f"this version does not have it: {wanted.reason}"
                return False

    def _make_file(self, path: str, name: str, folder: int) -> None:
        wanted, there = self._target[path], self._present.get(path)
        first = self._links.setdefault(wanted.signature.file, path)
        if first != path:
            self._link(first, name, folder)
            return
        if there is not None and there.kind == "file" and there.signature.file == wanted.signature.file:
            with suppress(PermissionError):  # it may not be written to: a new file can take its name
                self._rewrite(wanted, name, folder)
                return
        self._replace(wanted, name, folder)

    def _rewrite(self, wanted: PathEntry, name: str, folder: int) -> None:
        """Writes the old bytes into the same file: a process that has it open or mapped sees them."""
        file = os.open(name, _REWRITE, dir_fd=folder)
        try:
            self._store.write(wanted.content, file)
            _set_metadata(file, wanted)
        finally:
            os.close(file)

    def _replace(self, wanted: PathEntry, name: str, folder: int) -> None:
        temporary = f".{os.urandom(8).hex()}"
        file = os.open(temporary, _CREATE, stat.S_IMODE(wanted.signature.mode), dir_fd=folder)
        try:
            try:
                self._store.write(wanted.content, file)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise
            _set_metadata(file, wanted)
        finally:
            os.close(file)

    def _link(self, first: str, name: str, folder: int) -> None:
        """Adds a name to a file that is in place."""
        source_path, source_name = parent_of(first)
        with opened(self._top, source_path) as source:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            os.link(source_name, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def _finish_folder(self, path: str, _name: str, _folder: int) -> bool:
        with opened(self._top, path) as folder:
            _set_metadata(folder, self._target[path])
        return False


def _make_link(wanted: PathEntry, name: str, folder: int, there: PathEntry | None) -> bool:
    if there is not None and there.signature.kind == "link":
        if there.content == wanted.content and there.signature.mtime_ns == wanted.signature.mtime_ns:
            return False
        os.unlink(name, dir_fd=folder)
    os.symlink(wanted.content, name, dir_fd=folder)
    _set_time(name, wanted, folder)
    return True


def _set_metadata(file: int, wanted: PathEntry) -> None:
    status = _fstat(file)
    if status.st_mode != wanted.signature.mode:
        os.fchmod(file, stat.S_IMODE(wanted.signature.mode))
    if status.st_mtime_ns != wanted.signature.mtime_ns:
        _set_time(file, wanted)


def _set_time(file: int | str, wanted: PathEntry, folder: int | None = None) -> None:
    """At `landlock` a jail may not set times; that is reported for each path."""
    times = (wanted.signature.mtime_ns, wanted.signature.mtime_ns)
    try:
        if folder is None:
            os.utime(file, ns=times)
        else:
            os.utime(file, ns=times, dir_fd=folder, follow_symlinks=False)
    except PermissionError as error:
        raise OSError(error.errno, "its time cannot be set") from None
