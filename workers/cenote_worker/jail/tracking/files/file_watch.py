"""What one step did to files: the audit hook's events, and changes in the working directory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType
from typing import Final

from cenote_worker.execution.trace import ABSENT, ANYTHING, TREE, Location, Version, file, key_of
from cenote_worker.jail.tracking.budget import InspectionBudget
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.files import audit_hook
from cenote_worker.jail.tracking.files.audit_hook import AuditRecord
from cenote_worker.jail.tracking.files.workdir_files import LINK, WorkdirFiles, changed, together
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.jail.tracking.process_state.modules import is_of_library, is_unknown
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SYSTEM: Final = ("/proc/", "/dev/", "/sys/", "/etc/", "/usr/")
_NATIVE: Final = frozenset(
    ("pyarrow", "polars", "duckdb", "h5py", "sqlite3", "cv2", "tables", "torch", "fastparquet")
)
"""Libraries that open files themselves, without audit events."""

_ALWAYS: Final = frozenset(("duckdb", "h5py", "sqlite3", "tables", "cv2", "fastparquet"))
"""Those whose objects are files, or read files when their content is requested."""

_NATIVE_OF_PANDAS: Final = frozenset(
    ("read_parquet", "read_orc", "read_hdf", "HDFStore", "to_parquet", "to_orc", "to_hdf")
)
_READING: Final = (
    "read_", "scan_", "load", "open", "connect", "sql", "query", "execute", "get_file", "File", "Parquet", "dataset",
    "input_stream", "from_file", "memory_map", "OSFile", "collect", "fetch", "to_table", "to_batches", "scanner",
    "copy_file",
)  # fmt: skip
_ASKING: Final = frozenset(
    ("exists", "isfile", "isdir", "islink", "stat", "lstat", "getsize", "getmtime", "is_file", "is_dir", "iterdir",
     "rglob", "glob", "walk", "samefile", "disk_usage", "access", "lexists", "readlink", "realpath", "resolve",
     "is_symlink", "ismount", "is_mount", "which", "listxattr", "getxattr", "getatime", "getctime")
)  # fmt: skip
_ASKING_THEMSELVES: Final = frozenset(("filecmp", "gettext", "linecache", "mimetypes", "netrc", "zipimport"))
"""Modules of the standard library that check for files which their caller does not name."""

_ASKED: Final = frozenset(("os", "os.path", "posix", "posixpath", "pathlib", "glob", "shutil", "genericpath"))

_BY_NUMBER: Final = frozenset(("os", "posix", "mmap"))
"""Libraries that read files of which they get only the descriptor."""

_IMPORTING: Final = frozenset(("import_module", "find_spec", "iter_modules", "walk_packages"))
_import_path = sys.path

Seen = dict[Location, Version]


class StepFileWatch:
    """Made before the step; listens until `end`."""

    def __init__(
        self,
        files: WorkdirFiles,
        namespace: dict[str, object],
        facts: Facts,
        packages: frozenset[str],
        budget: InspectionBudget,
        parts: tuple[CodeType, ...] = (),
    ) -> None:
        """facts, packages: what is known before it runs of its code, `parts`, and of libraries that it reaches."""
        self._files = files
        if unseen_by(facts, packages):
            files.look_at_temporary()
        self._open = files.open_now()
        self._before = files.marks()
        self._versions = files.versions(self._before or {}, budget)
        self._temporary = {file(key): files.version(key, budget) for key in files.left}
        self.noted = AuditRecord(namespace, parts)
        self.only_here = False
        """After the step: whether it has certainly written no files but those of the directory, by their names, so
        that a copy of the directory contains all its changes to files."""
        audit_hook.listen(self.noted)

    def end(
        self, facts: Facts, packages: frozenset[str], budget: InspectionBudget, *, holds: bool
    ) -> tuple[Seen, Seen]:
        """Files read, with their versions before the step, and files changed, with their versions after it.

        holds: it had an object that is not fully known, which may be a file that was opened before.
        """
        audit_hook.listen(None)
        files, noted = self._files, self.noted
        after = files.marks()
        others = changed(self._before, after)
        self.only_here = after is not None and self._is_only_here(others, facts, packages)
        files.doubt(noted.changed - noted.rewritten)
        different = {file(path) for path in others} | set(self._located(noted.changed))
        unseen = self._written_unseen(facts, packages, budget)
        if noted.read or noted.changed or noted.processes or unseen_by(facts, packages):
            files.may_be_open = True
        different |= unseen or set()
        different |= {
            file(key) for key in files.doubted if self._versions.get(key) != files.version(key, budget)
        }
        different.discard(TREE)
        read = set(self._located(noted.read)) - {TREE}
        if holds or noted.descriptors or not _BY_NUMBER.isdisjoint(packages | facts.imports):
            read |= set(self._located(self._open))
        if (
            noted.processes
            or noted.unplaced
            or any(True for _ in self._located(noted.listed))
            or _may_read_unseen(facts, packages, bool(read))
        ):
            read.add(TREE)
            read.update(self._temporary)
        temporary = {each for each in different if files.is_temporary(key_of(each))}
        files.left.update(map(key_of, temporary))
        read |= {*self._importable(), *temporary}
        # Through a file that it already had open, it has written into an existing file.
        read |= different - set(map(files.location, noted.rewritten))
        read.update(folder for each in read | different for folder in files.folders(key_of(each)))
        writes = {each: files.version(key_of(each), budget) for each in sorted(different)}
        reads = {each: self._was(each, budget) for each in sorted(read)}
        if writes or self._before is None or after is None:
            writes[TREE] = files.version(".", budget)
        if unseen is None:
            reads[ANYTHING] = writes[ANYTHING] = fresh()
        return reads, writes

    def _is_only_here(self, different: set[str], facts: Facts, packages: frozenset[str]) -> bool:
        """Files of the system may be settings of the process, or its memory; and a link that is gone may have led to
        one.
        """
        noted = self.noted
        if (
            noted.processes
            or noted.unplaced
            or noted.descriptors
            or noted.remote
            or unseen_by(facts, packages)
        ):
            return False
        if self._before is None:
            return False
        if any(self._versions[path].startswith(LINK) for path in different & self._before.keys()):
            return False
        located = map(self._files.location, noted.changed)
        return all(each is not None and not key_of(each).startswith("/") for each in located)

    def _written_unseen(
        self, facts: Facts, packages: frozenset[str], budget: InspectionBudget
    ) -> set[Location] | None:
        """Temporary files that have changed since the last look at all of them; None if they are too many."""
        noted, files = self.noted, self._files
        if not (noted.processes or noted.unplaced or unseen_by(facts, packages)):
            return set()
        before = files.temporary_marks
        after = files.look_at_temporary()
        if before is None or after is None:
            return None
        found = {file(path) for path in changed(before, after)}
        return {each for each in found if self._temporary.get(each) != files.version(key_of(each), budget)}

    def _was(self, location: Location, budget: InspectionBudget) -> Version:
        """A file outside of the working directory is assumed to be unchanged."""
        key = key_of(location)
        if self._before is None:
            return fresh()
        if location == TREE:
            return together(self._versions | {key_of(one): known for one, known in self._temporary.items()})
        if self._files.is_temporary(key):
            return self._temporary.get(location, ABSENT)
        if key.startswith("/"):
            return self._files.version(key, budget)
        return self._versions.get(key, ABSENT)

    def _located(self, paths: Iterable[str]) -> Iterable[Location]:
        for path in paths:
            if not is_of_library(path) and not path.startswith(_SYSTEM):
                location = self._files.location(path)
                if location is not None and "__pycache__" not in location:
                    yield location
                    yield from self._files.links(path)

    def _importable(self) -> Iterable[Location]:
        """Files that would have been the sought modules if they existed."""
        if not self.noted.sought:
            return
        for folder in self._files.inside(_import_path):
            for path in {sought.partition(".")[0] for sought in self.noted.sought}:
                yield from (file(f"{folder}{path}.py"), file(f"{folder}{path}"))


def _may_read_unseen(facts: Facts, packages: frozenset[str], noticed: bool) -> bool:
    """Whether the code may check for files without an audit event."""
    libraries, words = packages | facts.imports, facts.attributes | facts.loads
    if libraries & _ASKED and words & _ASKING:
        return True
    if words & _IMPORTING:
        return True
    if libraries & _ALWAYS or any(map(_asks_itself, libraries)):
        return True
    native = libraries & _NATIVE or ("pandas" in libraries and (not noticed or words & _NATIVE_OF_PANDAS))
    return bool(native) and any(word.startswith(_READING) for word in words)


def _asks_itself(library: str) -> bool:
    """Whether a library may check whether a file exists, and continue without one, without an audit event."""
    return library.partition(".")[0] in _ASKING_THEMSELVES or is_unknown(library)


def unseen_by(facts: Facts, packages: frozenset[str]) -> tuple[str, ...]:
    """Why the code may write files without an audit event. Those in the working directory and the folder of temporary
    files are found by looking there.
    """
    libraries = packages | facts.imports
    reasons = tuple(f"{each} opens files itself" for each in sorted(libraries & _NATIVE))
    if reasons or "pandas" not in libraries or _NATIVE_OF_PANDAS.isdisjoint(facts.attributes):
        return reasons
    return ("pandas has files written by such as pyarrow",)
