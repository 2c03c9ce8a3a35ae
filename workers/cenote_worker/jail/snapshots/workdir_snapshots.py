"""The working directory at the time of each copy of the worker that the warden keeps."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from cenote_worker.jail.process import proc_info
from cenote_worker.jail.process.proc_info import MemoryMap
from cenote_worker.jail.tracking.files.workdir_files import KEPT_FILES, FolderChanges
from cenote_worker.jail.workdir.folder_watch import FolderWatch
from cenote_worker.jail.workdir.version_store import VersionLost
from cenote_worker.jail.workdir.versions import InUse, NotBrought, RestoreResult, WorkdirVersions
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.worker_settings import WorkerSettings

__builtins__ = BUILTINS

NONE: Final = 0
"""The version number of a directory that is not kept."""

_SHARE: Final = 4
"""Copies of files may take one part in this many of the disk."""

_MAX_FILE: Final = 2**28
"""Bytes of one file: copying it takes a tenth of a second, after each cell that has written to it."""


class WorkdirSnapshots:
    """Version numbers grow with time, even when the process continues from a copy that knows of fewer."""

    def __init__(self, settings: WorkerSettings, *, is_mount: bool = False) -> None:
        """is_mount: whether the directory is a mount of its own, and can be watched; see `FolderWatch`."""
        self._settings = settings
        self._watch = FolderWatch(settings.workdir) if is_mount else None
        self._versions = _versions(settings, self)
        self.unkept = ""
        """Why the directory was not kept the last time; empty when it was."""

    def begin_anew(self) -> None:
        """Called in another jail, which has none of the kept versions."""
        self.end_watch()
        self._versions, self.unkept = _versions(self._settings, self), ""

    def moment(self, entries: int) -> int | None:
        """Of the directory: see `FolderWatch`."""
        return None if self._watch is None else self._watch.moment(entries)

    def changed_since(self, moment: int) -> Collection[str] | None:
        """Likewise."""
        return None if self._watch is None else self._watch.changed_since(moment)

    def end_watch(self) -> None:
        """Called before this process is stored, and first in a copy of it."""
        if self._watch is not None:
            self._watch.end()

    def keep(self) -> int:
        """The number of a version that equals the directory now: an earlier one if nothing has changed."""
        recorded = self._versions.record(time.monotonic_ns(), or_last=True)
        if not recorded.kept:
            self.unkept = f"the working directory is not kept: {recorded.skipped[0].reason}"
            return NONE
        self.unkept = ""
        return recorded.version

    def bring(self, number: int, paths: Collection[str]) -> str:
        """Restores these paths from a version. Returns why that failed; empty on success.

        Never raises.
        """
        if number == NONE:
            return "the working directory was not kept with that state"
        mapped = MemoryMap().files()
        if mapped is None:
            return "it is not known here which files are in use"
        used = InUse(opened=proc_info.open_files(), mapped=mapped[0], paths=mapped[1])
        try:
            self._versions.bring(number, paths, used)
        except (NotBrought, VersionLost) as reason:
            return str(reason)
        except Exception as error:  # a full disk; or a cell has replaced what this calls
            return f"{type(error).__name__}: {error}"
        return ""

    def wanted(self, numbers: Collection[int], newest: int) -> None:
        """Drops versions that no copy has any more. newest: the newest that the warden knows of; later ones are on
        their way."""
        for number in [each for each in self._versions.numbers() if each <= newest and each not in numbers]:
            self._versions.drop(number)

    def learn(self, number: int) -> None:
        """Says that the directory equals that version. Never raises: on failure all of it is copied again."""
        if number != NONE:
            with suppress(VersionLost):
                self._versions.learn(number)

    def restore(self, number: int) -> tuple[str, ...]:
        """Restores a version. Returns what could not be restored, a line each. Never raises."""
        if number == NONE:
            return (self.unkept or "the working directory was not kept",)
        try:
            return _told(self._versions.restore(number))
        except (VersionLost, OSError) as error:
            return (f"the working directory is as it was left last: {error}",)
        except Exception as error:  # a cell may have replaced what this calls
            return (f"the working directory may be as it was left last: {type(error).__name__}",)


def _versions(settings: WorkerSettings, changes: FolderChanges) -> WorkdirVersions:
    most = settings.policy.disk_bytes // _SHARE
    store = str(Path(settings.temporary, KEPT_FILES))
    largest = min(most, _MAX_FILE)
    return WorkdirVersions(settings.workdir, store, max_bytes=most, max_file=largest, changes=changes)


def _told(restored: RestoreResult) -> tuple[str, ...]:
    lines = [f"{one.path}: {one.reason}" for one in restored.skipped]
    if restored.not_named:
        lines.append(f"{restored.not_named} more files")
    return tuple(lines)
