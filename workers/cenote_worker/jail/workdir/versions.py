"""Versions of the working directory, one for each kept state of the namespace.

A scan of all metadata shows which files may have changed; only their bytes are copied. Files are copied and not
linked, since a cell may write into any file that it can name, but not into the copies. Metadata proves a file
unchanged only if two changes of a file always have different times, which is tested.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cenote_worker.jail.process.proc_info import shared_files
from cenote_worker.jail.tracking.files.file_locks import FileReader, reading
from cenote_worker.jail.tracking.files.workdir_files import FolderChanges
from cenote_worker.jail.workdir import restoring as bringing
from cenote_worker.jail.workdir.restoring import InUse, NotBrought, TreeRestore
from cenote_worker.jail.workdir.tree import (
    MAX_ENTRIES,
    PathEntry,
    Signature,
    TooManyEntries,
    Tree,
    entry_at,
    opened,
    parent_of,
    scan,
)
from cenote_worker.jail.workdir.version_store import NoRoom, VersionLost, VersionStore
from cenote_worker.process.pristine import BUILTINS

__all__ = [
    "InUse",
    "NotBrought",
    "RecordResult",
    "RestoreResult",
    "SkippedPath",
    "VersionLost",
    "WorkdirVersions",
]


__builtins__ = BUILTINS

_fstat = os.fstat

_REALTIME_COARSE = 5
"""The clock of file timestamps: it advances once per tick of the kernel, each 1 to 10 ms."""

_TICK = 0.05
"""Seconds to wait for a tick at most, five times the longest one."""

_TRIALS = 6

_sleep, _monotonic = time.sleep, time.monotonic
_clock_gettime_ns = time.clock_gettime_ns


def is_fine(folder: Path) -> bool:
    """Whether this file system gives a file a new time at each change after a stat (Linux 6.13 and later).

    Tested on a file that is changed immediately after each stat: other systems give the same time within a tick.
    """
    probe = folder / f".{os.urandom(6).hex()}"
    file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        times = []
        for _ in range(_TRIALS):
            os.pwrite(file, b"x", 0)
            times.append(_fstat(file).st_ctime_ns)
        return len(set(times)) == _TRIALS
    finally:
        os.close(file)
        probe.unlink()


def wait_until_past(ctime_ns: int) -> None:
    """Waits until any further change gets a later time than this."""
    deadline = _monotonic() + _TICK
    while _clock_gettime_ns(_REALTIME_COARSE) <= ctime_ns and _monotonic() < deadline:
        _sleep(0.001)


_lstat, _status_of = os.lstat, os.fstat

_READ = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # opening a pipe must not wait for its writer
_ATTEMPTS = 2

MAX_SKIPPED = 20
"""Paths that are named in one report; further ones are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPath:
    """A path that a version does not have, or that could not be restored, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordResult:
    """kept: whether there is a version now; if not, `skipped` says why for the path `""`. version: its number.

    copied: files whose bytes were copied, and bytes: how many. skipped: at most MAX_SKIPPED; not_named: further ones.
    """

    kept: bool
    version: int = 0
    copied: int = 0
    bytes: int = 0
    skipped: tuple[SkippedPath, ...] = ()
    not_named: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """changed: paths that were written, made or removed. skipped: paths that could not be restored; see
    RecordResult."""

    changed: int
    skipped: tuple[SkippedPath, ...] = ()
    not_named: int = 0


class WorkdirVersions:
    """top: the working directory. store: a folder of our own on the same disk, outside of `top`.

    Serves one process and the copies forked from it, of which only one works at a time.
    """

    def __init__(
        self,
        top: str,
        store: str,
        *,
        max_bytes: int,
        max_file: int,
        changes: FolderChanges | None = None,
    ) -> None:
        """changes: see `FolderWatch`; None if nothing watches the folder."""
        self._top = top
        self._changes = changes
        self._recorded_at: int | None = None
        """A moment at which the directory was equal to the last version; None if that is unknown."""
        self._store = VersionStore(store, max_bytes=max_bytes, max_file=max_file)
        self._last: Tree = {}
        self._last_version: int | None = None
        self._fine_clock: bool | None = None

    def record(self, version: int, *, or_last: bool = False) -> RecordResult:
        """Keep the directory as it is now. Never raises: a cell controls the directory and its surroundings.

        or_last: if nothing has changed, the last version is used, and nothing is written.
        """
        try:
            return self._record(version, or_last)
        except TooManyEntries:
            return _nothing("there are too many files")
        except OSError as error:
            return _nothing(error.strerror or str(error))
        except Exception as error:  # a cell may have replaced what this calls
            return _nothing(f"{type(error).__name__}: {error}"[:200])

    def numbers(self) -> list[int]:
        """The numbers of all kept versions."""
        return self._store.numbers()

    def learn(self, version: int) -> None:
        """Take it as the last recorded version, when another process has recorded it. Raises VersionLost."""
        self._recorded_at = None
        self._last, self._last_version = self._store.load(version), version

    def restore(self, version: int) -> RestoreResult:
        """Restore the directory. Files in place are not touched. Undoable if it was recorded before.

        Raises VersionLost; nothing has been changed then. And OSError, if the directory itself cannot be opened.
        """
        self._recorded_at = None
        target = self._store.load(version)
        tree = self._look()
        if target == self._last and self._is_still(tree) and _has_all(target):
            # The usual case, and this process has just been forked: each page that it writes to is copied first.
            self._last_version = version
            return RestoreResult(changed=0)
        restoring = TreeRestore(self._top, self._store, tree, target)
        problems = restoring.run()
        self._store.save(version, self._learn(version, target))
        skipped = tuple(SkippedPath(path=path, reason=reason) for path, reason in problems.items())
        return RestoreResult(
            changed=restoring.changed,
            skipped=skipped[:MAX_SKIPPED],
            not_named=max(0, len(skipped) - MAX_SKIPPED),
        )

    def bring(self, version: int, paths: Collection[str], used: InUse) -> None:
        """Restore these paths, and leave all others as they are; a path that did not exist is removed.

        Raises NotBrought if a path could not be restored, or another process may notice; then the other paths are not
        reliable either. VersionLost; nothing has been changed then. OSError, TooManyEntries.
        """
        self._recorded_at = None
        target = bringing.wanted(self._store.load(version), paths)
        tree = self._look()
        linked = [path for path in paths if path in tree and self._has_names(path)]
        there = bringing.present(tree, target, paths, linked, self._top, used)
        problems = TreeRestore(self._top, self._store, there, target).run()
        self._learn_part(paths, target)
        for path, reason in problems.items():
            raise NotBrought(f"{path}: {reason}")

    def drop(self, version: int) -> None:
        """Free what only this version has."""
        self._store.drop(version)

    def cost(self) -> int:
        """Bytes on the disk of all versions."""
        return self._store.bytes()

    # -- recording --

    def _record(self, version: int, or_last: bool) -> RecordResult:
        moment = None if self._changes is None else self._changes.moment(len(self._last))
        last, since = self._last_version, self._recorded_at
        is_known = last is not None and moment is not None and since is not None and self._store.has(last)
        if or_last and last is not None and is_known and moment == since:
            return RecordResult(kept=True, version=last)
        self._recorded_at = None
        found = self._look_since(since) if is_known and since is not None else None
        tree, changed = found or self._look_at_all()
        copies = _Copies(self._top, self._store)
        if or_last and last is not None and tree == self._last and not changed and self._store.has(last):
            version = last
        else:
            self._wait_for_a_tick(changed, tree)
            for path in changed:
                tree[path] = copies.take(path, tree[path].signature)
            self._save(version, tree)
        skipped = [
            SkippedPath(path=path, reason=entry.reason) for path, entry in tree.items() if entry.reason
        ]
        self._recorded_at = None if skipped else moment  # what was skipped is tried again
        return RecordResult(
            kept=True,
            version=version,
            copied=copies.files,
            bytes=copies.bytes,
            skipped=tuple(skipped[:MAX_SKIPPED]),
            not_named=max(0, len(skipped) - MAX_SKIPPED),
        )

    def _look_at_all(self) -> tuple[Tree, list[str]]:
        tree = self._look()
        return tree, self._take_over(tree)

    def _look_since(self, moment: int) -> tuple[Tree, list[str]] | None:
        """The same from what has changed since the last version was recorded, which the store has; None if that is
        unknown, or a path is gone."""
        assert self._changes is not None
        paths = self._changes.changed_since(moment)
        if paths is None:
            return None
        try:
            there = {path: entry_at(self._top, path) for path in paths}
            folders = {each: entry_at(self._top, each) for each in {parent_of(path)[0] for path in paths}}
        except OSError:
            return None
        changed = self._take_over(there)
        tree = self._last | there | folders
        if len(tree) > MAX_ENTRIES:
            raise TooManyEntries
        return tree, changed

    def _look(self) -> Tree:
        tree = scan(self._top)
        # FileReader the process's mappings takes longer than scanning a small directory.
        if any(entry.kind == "file" for entry in tree.values()) and (mapped := shared_files()):
            for path, entry in tree.items():
                if entry.signature.inode in mapped:
                    tree[path] = entry._replace(signature=entry.signature.doubted())
        return tree

    def _is_still(self, tree: Tree) -> bool:
        return not self._take_over(tree) and tree == self._last

    def _take_over(self, tree: Tree) -> list[str]:
        """Give unchanged files their last content. Returns the paths of the others."""
        changed, kept, former = [], self._store.kept(), self._last
        for path, entry in tree.items():
            last = former.get(path)
            if last and last.content in kept and entry.signature.proves(last.signature):
                tree[path] = last
            elif entry.kind == "file":
                changed.append(path)
        return changed

    def _wait_for_a_tick(self, changed: list[str], tree: Tree) -> None:
        """Waits, so that a change after the copy cannot have the same time as the one before it."""
        if self._fine_clock is None:
            self._fine_clock = is_fine(self._store.folder)
        if changed and not self._fine_clock:
            wait_until_past(max(tree[path].signature.ctime_ns for path in changed))

    def _save(self, version: int, tree: Tree) -> None:
        if self._last_version is not None and tree == self._last:
            try:
                self._store.save_same(version, self._last_version)
                return
            except OSError:  # that version was dropped meanwhile
                pass
        self._store.save(version, tree)
        self._last, self._last_version = tree, version

    # -- restoring --

    def _learn(self, version: int, target: Tree) -> Tree:
        """The version as it is on the disk now: the same contents, other signatures."""
        now = self._look()
        if self._fine_clock is False:
            wait_until_past(max(entry.signature.ctime_ns for entry in now.values()))
        tree = {
            path: entry._replace(signature=now[path].signature) if path in now else entry
            for path, entry in target.items()
        }
        self._last, self._last_version = tree, version
        return tree

    def _learn_part(self, paths: Collection[str], target: Tree) -> None:
        """Updates the last version for these paths, so that their bytes are not copied once more."""
        now = self._look()
        changed = [path for path in paths if path in now]
        self._wait_for_a_tick(changed, now)
        self._last = {path: entry for path, entry in self._last.items() if path not in paths}
        self._last |= {
            path: target[path]._replace(signature=now[path].signature) for path in changed if path in target
        }
        self._last_version = None

    def _has_names(self, path: str) -> bool:
        """Whether it is a file with several names."""
        status = _lstat(f"{self._top}/{path}")
        return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


class _Copies:
    """The copies that one record makes. files, bytes: how many."""

    def __init__(self, top: str, store: VersionStore) -> None:
        self._top, self._store = top, store
        self._done: dict[tuple[int, int], PathEntry] = {}
        self.files = self.bytes = 0

    def take(self, path: str, signature: Signature) -> PathEntry:
        """An entry with the file's content, or with the reason why it has none."""
        if (done := self._done.get(signature.file)) is not None:
            return done
        try:
            entry = self._taken(path)
            if signature == signature.doubted():
                entry = entry._replace(signature=entry.signature.doubted())
        except OSError as error:
            entry = PathEntry(signature, reason=f"it cannot be read: {error.strerror}")
        except NoRoom as refusal:
            entry = PathEntry(signature, reason=str(refusal))
        self._done[signature.file] = entry
        return entry

    def _taken(self, path: str) -> PathEntry:
        folder_path, name = parent_of(path)
        with opened(self._top, folder_path) as folder, reading(name, _READ, folder) as file:
            return self._copied(file)

    def _copied(self, file: FileReader) -> PathEntry:
        for _ in range(_ATTEMPTS):
            before = Signature.of(_status_of(file.number))
            if before.kind != "file":
                return PathEntry(before, reason="it became something else meanwhile")
            content = self._store.add(file.number, seeking=file.is_ours)
            if Signature.of(_status_of(file.number)) == before:
                self.files, self.bytes = self.files + 1, self.bytes + before.size
                return PathEntry(before, content=content)
            self._store.discard([content])
        return PathEntry(before, reason="it is being written to")


def _has_all(tree: Tree) -> bool:
    """Whether the version has all of its paths."""
    return all(entry.kind != "other" for entry in tree.values())


def _nothing(reason: str) -> RecordResult:
    return RecordResult(kept=False, skipped=(SkippedPath(path="", reason=reason),))
