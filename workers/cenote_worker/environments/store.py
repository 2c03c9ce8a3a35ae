"""The environments that are built on this machine, by digest.

    DIGEST/environment.json   what it is; processes that start jails from it hold a shared lock on this file
    DIGEST/venv/              its packages, read-only; missing for a virtual environment that lies elsewhere
    names/NAME                a digest
    resolved/KEY              the digest that requirements were resolved to
    locks/DIGEST              locked by the process that builds it
    staging/DIGEST.RANDOM     that process's unfinished build
    worker/KEY                the packages that workers need themselves

A folder is renamed to its digest only when it is complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from cenote_security.environment import DIGEST_LENGTH, is_digest, is_reference
from cenote_security.errors import UsageError
from cenote_worker.environments.errors import EnvironmentInUseError, UnknownEnvironmentError

FACTS: Final = "environment.json"
VENV: Final = "venv"
_SHORTEST: Final = 8
"""Fewest digits that may abbreviate a digest, if no other begins with them."""


@dataclass(frozen=True, kw_only=True)
class BuiltEnvironment:
    """A built environment. venv: its virtual environment. lock: what it was installed from, empty for one that lies
    elsewhere. packages: as `name==version`. size: bytes on disk. built: when, in seconds since the epoch.
    """

    digest: str
    venv: str
    python: str
    platform: str
    preload: tuple[str, ...]
    packages: tuple[str, ...]
    lock: str = ""
    size: int = 0
    built: float = 0.0

    @property
    def site(self) -> str:
        """The folder of its packages."""
        return site_of(self.venv)


def default_root() -> Path:
    """The folder of this user's environments: `CENOTE_ENVIRONMENTS`, or by XDG. Raises UsageError."""
    if told := os.environ.get("CENOTE_ENVIRONMENTS"):
        return Path(told).absolute()
    try:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    except RuntimeError:
        raise UsageError("this user has no home folder; set CENOTE_ENVIRONMENTS") from None
    return Path(base) / "cenote" / "environments"


class EnvironmentStore:
    """The environments below one folder. Safe for several processes at once."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root

    # -- reading --

    def get(self, digest: str) -> BuiltEnvironment | None:
        """The environment with this digest, if it exists."""
        try:
            facts = json.loads((self.root / digest / FACTS).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        facts |= {name: tuple(facts[name]) for name in ("preload", "packages")}
        facts["venv"] = str(self.root / digest / facts["venv"])
        return BuiltEnvironment(**facts)

    def find(self, reference: str) -> BuiltEnvironment:
        """An environment by name, by digest, or by its first digits. Raises UnknownEnvironmentError."""
        digest = self.names().get(reference, reference) if is_reference(reference) else ""
        if len(digest) < DIGEST_LENGTH:
            matching = [each for each in self.digests() if each.startswith(digest)]
            digest = matching[0] if len(digest) >= _SHORTEST and len(matching) == 1 else ""
        found = self.get(digest) if digest else None
        if found is None:
            raise UnknownEnvironmentError(reference)
        return found

    def all(self) -> list[BuiltEnvironment]:
        """All environments, the latest built first."""
        found = (self.get(digest) for digest in self.digests())
        return sorted((each for each in found if each is not None), key=lambda each: -each.built)

    def names(self) -> Mapping[str, str]:
        """Digests by name."""
        folder = self.root / "names"
        found: dict[str, str] = {}
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(FileNotFoundError):
                if is_reference(file.name):
                    found[file.name] = file.read_text(encoding="ascii").strip()
        return found

    def digests(self) -> list[str]:
        """Of all environments, in no order."""
        if not self.root.is_dir():
            return []
        return [path.name for path in self.root.iterdir() if is_digest(path.name)]

    def resolved(self, key: str) -> str:
        """The digest that requirements were resolved to; empty if unknown."""
        try:
            return (self.root / "resolved" / key).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    # -- writing --

    def note_resolved(self, key: str, digest: str) -> None:
        self._write(self.root / "resolved" / key, digest)

    def name(self, name: str, digest: str) -> None:
        """Gives an environment a name, and removes it from any other. Raises UsageError."""
        self.check_name(name)
        self._write(self.root / "names" / name, digest)

    def check_name(self, name: str) -> None:
        """Raises UsageError for an invalid name."""
        if not is_reference(name) or len(name) >= DIGEST_LENGTH:
            raise UsageError(
                f"a name of an environment is of letters, digits, '.', '_' and '-', less than {DIGEST_LENGTH} of "
                f"them, not {name!r:.100}"
            )

    def _write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        fresh.write_text(text, encoding="ascii")
        fresh.replace(file)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder for resolving packages."""
        (self.root / "staging").mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="resolving-", dir=self.root / "staging") as folder:
            yield Path(folder)

    @contextmanager
    def building(self, digest: str) -> Iterator[Path]:
        """A folder to build it in, while no other process builds it. Remains of earlier tries and of this one are
        removed. Blocks while another process builds it.

        Each try has its own folder: programs of a killed one may still write to theirs.
        """
        locks, staging = self.root / "locks", self.root / "staging"
        locks.mkdir(parents=True, exist_ok=True)
        staging.mkdir(exist_ok=True)
        with (locks / digest).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in staging.glob(f"{digest}.*"):
                with suppress(OSError):
                    _remove(left)
            stage = Path(mkdtemp(prefix=f"{digest}.", dir=staging))
            try:
                yield stage
            finally:
                _remove(stage)

    def publish(self, stage: Path, built: BuiltEnvironment) -> None:
        """Makes the contents of the folder, which are complete, the environment, read-only."""
        # A relative path for its own folder: the whole store may be moved.
        facts = asdict(built) | {"venv": VENV if (stage / VENV).exists() else built.venv}
        (stage / FACTS).write_text(json.dumps(facts, indent=2), encoding="utf-8")
        _make_read_only(stage)
        stage.chmod(0o755)  # renaming a folder writes to it, as its `..` changes
        os.sync()  # before the rename: after a power failure the name must not refer to unwritten data
        stage.rename(self.root / built.digest)
        (self.root / built.digest).chmod(0o555)

    # -- in use --

    @contextmanager
    def held(self, digest: str) -> Iterator[int]:
        """A descriptor; while any copy of it is open, the environment is not removed.

        Raises UnknownEnvironmentError where it is gone.
        """
        file = self.root / digest / FACTS
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise UnknownEnvironmentError(digest) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not _is_at(descriptor, file):  # removed during the wait for the lock
                raise UnknownEnvironmentError(digest)
            yield descriptor
        finally:
            os.close(descriptor)

    def remove(self, reference: str) -> BuiltEnvironment:
        """Removes an environment and its names. Raises UnknownEnvironmentError, EnvironmentInUseError."""
        found = self.find(reference)
        folder, gone = self.root / found.digest, self.root / "staging" / f"gone-{secrets.token_hex(8)}"
        with open(folder / FACTS, "rb") as facts:
            try:
                fcntl.flock(facts, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentInUseError(found.digest) from None
            gone.parent.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
            folder.rename(gone)
        for name, digest in self.names().items():
            if digest == found.digest:
                (self.root / "names" / name).unlink(missing_ok=True)
        _remove(gone)
        return found

    def is_held(self, digest: str) -> bool:
        """Whether it is in use."""
        try:
            with open(self.root / digest / FACTS, "rb") as facts:
                fcntl.flock(facts, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


def site_of(venv: str) -> str:
    """The folder of the packages of a virtual environment of this Python."""
    return f"{venv}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def installed(site: str) -> tuple[str, ...]:
    """The packages installed in a folder, as `name==version`. None of their code runs."""
    found = {
        (str(each.metadata["Name"]).lower().replace("_", "-"), str(each.version))
        for each in metadata.distributions(path=[site])
        if each.metadata["Name"]
    }
    return tuple(f"{name}=={version}" for name, version in sorted(found))


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in _below(folder))


def _below(folder: Path) -> Iterable[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def _make_read_only(folder: Path) -> None:
    """Readable for all users: jails run as other users when root starts them."""
    for path in _below(folder):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            path.chmod(0o555 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o444)


def _remove(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    for path in (folder, *_below(folder)):
        if not path.is_symlink() and path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)
