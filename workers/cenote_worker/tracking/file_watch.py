"""What one step did to files: what the audit hook told, and what is different in the working directory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import ABSENT, TREE, Location, Version, file, key_of
from cenote_worker.tracking import audit
from cenote_worker.tracking.audit import Noted
from cenote_worker.tracking.budget import Budget
from cenote_worker.tracking.facts import Facts
from cenote_worker.tracking.files import Files, changed, together
from cenote_worker.tracking.own_modules import is_of_library
from cenote_worker.tracking.picture import fresh

__builtins__ = BUILTINS

_SYSTEM: Final = ("/proc/", "/dev/", "/sys/", "/etc/", "/usr/")
_NATIVE: Final = frozenset(
    ("pyarrow", "polars", "duckdb", "h5py", "sqlite3", "cv2", "tables", "torch", "fastparquet")
)
"""Libraries that open files themselves, so that no hook hears of it."""

_NATIVE_OF_PANDAS: Final = frozenset(("read_parquet", "read_orc", "read_hdf", "HDFStore"))
_READING: Final = ("read_", "scan_", "load", "open", "connect", "sql", "query", "execute", "imread")
_ASKING: Final = frozenset(
    ("exists", "isfile", "isdir", "islink", "stat", "lstat", "getsize", "getmtime", "is_file", "is_dir", "iterdir",
     "rglob", "glob", "walk", "samefile", "disk_usage", "access", "lexists")
)  # fmt: skip
_ASKED: Final = frozenset(("os", "os.path", "posixpath", "pathlib", "glob", "shutil", "genericpath"))

_IMPORTING: Final = frozenset(("import_module", "find_spec", "iter_modules", "walk_packages"))
_import_path = sys.path

Seen = dict[Location, Version]


class FileWatch:
    """Made before the step; listens until `end`."""

    def __init__(self, files: Files, namespace: dict[str, object], budget: Budget) -> None:
        self._files = files
        self._before = files.marks()
        self._versions = files.versions(self._before or {}, budget)
        self._temporary = {file(key): files.version(key, budget) for key in files.left}
        self.noted = Noted(namespace)
        audit.listen(self.noted)

    def end(self, facts: Facts, packages: frozenset[str], budget: Budget) -> tuple[Seen, Seen]:
        """Files read, with their versions before the step, and files changed, with those after it."""
        audit.listen(None)
        files, noted = self._files, self.noted
        after = files.marks()
        different = {file(path) for path in changed(self._before, after)} | set(self._located(noted.changed))
        different.discard(TREE)
        read = set(self._located(noted.read)) - {TREE}
        if (
            noted.processes
            or any(True for _ in self._located(noted.listed))
            or _may_read_unseen(facts, packages, bool(read))
        ):
            read.add(TREE)
            read.update(self._temporary)
        temporary = {each for each in different if files.is_temporary(key_of(each))}
        files.left.update(map(key_of, temporary))
        read |= {*self._importable(), *temporary}
        writes = {each: files.version(key_of(each), budget) for each in sorted(different)}
        reads = {each: self._was(each, budget) for each in sorted(read)}
        if writes or self._before is None or after is None:
            writes[TREE] = files.version(".", budget)
        return reads, writes

    def _was(self, location: Location, budget: Budget) -> Version:
        """A file elsewhere than in the working directory is taken to be as it was."""
        key = key_of(location)
        if self._before is None:
            return fresh()
        if location == TREE:
            return together(self._versions)
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
        """Files that would have been the modules that were looked for, were they there."""
        if not self.noted.sought:
            return
        for folder in self._files.inside(_import_path):
            for path in {sought.partition(".")[0] for sought in self.noted.sought}:
                yield from (file(f"{folder}{path}.py"), file(f"{folder}{path}"))


def _may_read_unseen(facts: Facts, packages: frozenset[str], noticed: bool) -> bool:
    """Whether the code may ask for files in a way that nobody hears of."""
    libraries, words = packages | facts.imports, facts.attributes | facts.loads
    if libraries & _ASKED and words & _ASKING:
        return True
    if words & _IMPORTING:
        return True
    native = libraries & _NATIVE or ("pandas" in libraries and (not noticed or words & _NATIVE_OF_PANDAS))
    return bool(native) and any(word.startswith(_READING) for word in words)
