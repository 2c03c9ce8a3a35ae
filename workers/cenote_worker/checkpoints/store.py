"""A store of checkpoints: one folder per runtime below a URL; lists checkpoints and checks that they are whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote

from cenote_security.errors import UnknownEntryError, UsageError
from cenote_security.extras import MissingExtraError, importing
from cenote_worker.checkpoints.errors import CheckpointDamagedError, NewerCheckpointError, StoreFailedError
from cenote_worker.checkpoints.folder import Folder
from cenote_worker.checkpoints.image_files import BASE, COMMON, IMAGE
from cenote_worker.checkpoints.local_folder import SUFFIX, LocalFolder
from cenote_worker.checkpoints.manifest import (
    FOOTER,
    VERSION,
    MalformedManifest,
    Manifest,
    NewerManifest,
    decode,
    manifest_length,
)
from cenote_worker.process.file_systems import check_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cenote_worker.checkpoints.remote_folder import FileSystem

MAX_NAME = 200
"""Characters of a runtime's name once they are safe in a path, below every file system's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One checkpoint. step: the last one that it has. made: seconds since the epoch.

    size: bytes of the state. stored: bytes that it added to the store. complete: whether it has all of the state.
    """

    number: int
    label: str
    step: int
    made: float
    size: int
    stored: int
    complete: bool


class CheckpointStore:
    """Checkpoints of runtimes, by name, in a local folder or below any URL that fsspec knows.

    Safe to read beside any writer. Raises UsageError for a URL that cannot be used; calls raise StoreFailedError.
    """

    def __init__(self, url: str | Path, place: str = "", *, must_exist: bool = False) -> None:
        """place: what errors call it instead of its URL, which may be confidential. must_exist: a local store is
        a folder that exists; one that was moved away is not made again, so that nothing is stored in an empty one.
        """
        if not isinstance(url, str | Path) or not str(url):
            raise UsageError(f"a store is a folder or a URL that fsspec knows, not {url!r:.100}")
        self.url = str(url)
        self._place = place or self.url
        self._folder, self._children, self._size, self._check = _opened(
            self.url, place, must_exist=must_exist
        )

    def check(self) -> None:
        """Asks whether the store answers. An object store without anything in it does; a folder has to be there.

        Raises StoreFailedError.
        """
        with failures(self._place):
            self._check()

    def names(self) -> list[str]:
        """Runtimes that have checkpoints here, sorted."""
        with failures(self._place):
            return sorted(unquote(name) for name in self._children())

    def size(self) -> int:
        """Bytes of all checkpoints."""
        with failures(self._place):
            return self._size()

    def remove(self, name: str) -> None:
        """Removes all checkpoints of a runtime that has no writer any more; a missing folder is fine."""
        folder = self.folder(name)
        with failures(folder.place):
            folder.remove()

    def folder(self, name: str) -> Folder:
        """The folder of one runtime's checkpoints. Raises UsageError for a name that cannot be used."""
        if not isinstance(name, str):
            raise UsageError(f"the name of checkpoints is a text, not {type(name).__name__}")
        try:
            safe = quote(name, safe=" -_").replace(".", "%2E")
        except UnicodeEncodeError:  # the name has half of a surrogate pair
            safe = ""
        if not safe or len(safe) > MAX_NAME:
            raise UsageError(f"{name!r:.300} cannot name checkpoints: 1 to {MAX_NAME} plain characters can")
        return self._folder(safe)

    def has(self, name: str) -> bool:
        """Whether there is any checkpoint of a runtime, whole or not."""
        folder = self.folder(name)
        with failures(folder.place):
            return bool(folder.numbers())

    def checkpoints(self, name: str) -> list[CheckpointInfo]:
        """The checkpoints of a runtime that look whole, newest first. Their chunks are not read."""
        folder = self.folder(name)
        with failures(folder.place):
            numbers = frozenset(folder.numbers())
            found = [
                manifest for number in numbers if (manifest := whole_manifest(folder, number)) is not None
            ]
            whole = [manifest for manifest in found if manifest.files <= numbers]
            return [
                describe(manifest, folder) for manifest in sorted(whole, key=lambda m: m.number, reverse=True)
            ]

    def manifest(self, name: str, checkpoint: int | str | None = None) -> Manifest:
        """A checkpoint by number, or the newest with a label; by default the newest of all.

        Raises UnknownEntryError, CheckpointDamagedError, NewerCheckpointError.
        """
        folder = self.folder(name)
        with failures(folder.place):
            numbers = folder.numbers()
        if isinstance(checkpoint, str):
            labelled = [info.number for info in self.checkpoints(name) if info.label == checkpoint]
            number = labelled[0] if labelled else 0
        else:
            number = checkpoint if checkpoint is not None else max(numbers, default=0)
        if number not in numbers:
            raise UnknownEntryError(
                "checkpoint", f"{name} {checkpoint if checkpoint is not None else ''}".strip()
            )
        try:
            with failures(folder.place):
                return read_manifest(folder, number)
        except NewerManifest as error:
            others = self._others(name, number)
            raise NewerCheckpointError(name, number, error.found, VERSION, others) from None
        except MalformedManifest as error:
            raise self.damaged(name, number, (str(error),)) from None

    def _others(self, name: str, number: int) -> tuple[int, ...]:
        return tuple(info.number for info in self.checkpoints(name) if info.number != number)

    def damaged(self, name: str, number: int, damage: tuple[str, ...]) -> CheckpointDamagedError:
        """The error for this damage, with what else can be restored."""
        return CheckpointDamagedError(name, number, damage, self._others(name, number))


def read_manifest(folder: Folder, number: int) -> Manifest:
    """Raises MalformedManifest, OSError."""
    size = folder.size(number)
    footer = bytes(folder.read(number, max(size - FOOTER, 0), FOOTER))
    length = manifest_length(footer)
    if length > size - FOOTER:
        raise MalformedManifest("the file is shorter than its manifest")
    manifest = decode(bytes(folder.read(number, size - FOOTER - length, length)), footer)
    if manifest.number != number:
        raise MalformedManifest(f"it is the file of checkpoint {manifest.number}, under another name")
    return manifest


def whole_manifest(folder: Folder, number: int) -> Manifest | None:
    """The manifest; None for one that is damaged, or was deleted meanwhile."""
    try:
        return read_manifest(folder, number)
    except (MalformedManifest, FileNotFoundError):
        return None


def describe(manifest: Manifest, folder: Folder) -> CheckpointInfo:
    """The listed facts of a checkpoint."""
    return CheckpointInfo(
        number=manifest.number,
        label=manifest.label,
        step=manifest.state.message.step,
        made=manifest.made,
        size=manifest.size,
        stored=folder.size(manifest.number),
        complete=not manifest.unbuilt,
    )


@contextmanager
def failures(place: str) -> Iterator[None]:
    """Turns an OSError into a StoreFailedError that says where."""
    try:
        yield
    except OSError as error:
        raise StoreFailedError(place, error.strerror or str(error) or type(error).__name__) from error


def _opened(
    url: str, place: str, *, must_exist: bool
) -> tuple[Callable[[str], Folder], Callable[[], list[str]], Callable[[], int], Callable[[], None]]:
    """How a runtime's folder is made, what lists them, how many bytes they have, and a question to the store."""
    if is_local(url):
        root = local_root(url)
        return (
            lambda name: LocalFolder(root / name, place, parent_must_exist=must_exist),
            lambda: _local_children(root),
            lambda: _local_size(root),
            lambda: os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)),
        )
    from cenote_worker.checkpoints.remote_folder import Driver, RemoteFolder

    found, path = _remote(url)
    system = Driver(found)

    def children() -> list[str]:
        return [child.rstrip("/").rpartition("/")[2] for child in system.ls(path, detail=False)]

    def size() -> int:
        try:
            return system.du(path)
        except FileNotFoundError:
            return 0

    def folder(name: str) -> Folder:
        return RemoteFolder(system, f"{path}/{name}", place or f"{url.rstrip('/')}/{name}")

    def check() -> None:
        system.invalidate_cache(path)  # an earlier listing may be out of date
        with suppress(FileNotFoundError):
            system.ls(path, detail=False)

    return folder, children, size, check


def is_local(url: str) -> bool:
    """Whether a store is a folder of this machine or of a network file system."""
    return "://" not in url or url.startswith("file://")


def local_root(url: str) -> Path:
    """The folder of a local store. Raises UsageError for a path that cannot be one."""
    path = unquote(url.removeprefix("file://"))
    check_path(path)
    return Path(path).absolute()


def _remote(url: str) -> tuple[FileSystem, str]:
    with importing("what reaches object stores", "s3"):
        import fsspec  # takes 50 ms, and most stores are folders

    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        if url.startswith("s3://"):
            raise MissingExtraError(f"what reaches {url}", "s3", str(error)) from None
        raise UsageError(f"{url!r} takes a library that is not here: {error}; install it") from None
    except ValueError as error:
        raise UsageError(f"{url!r} is no store that can be used: {error}") from None
    except Exception as error:  # the driver's own kinds, such as one for missing credentials
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{url!r} is no store that can be used: {reason:.500}") from error
    return cast("FileSystem", system), str(path).rstrip("/")


def _local_children(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _local_size(root: Path) -> int:
    size, linked = 0, dict[int, int]()
    for folder in (root, *(root / name for name in _local_children(root))):
        with suppress(FileNotFoundError), os.scandir(folder) as files:  # removed just now
            for file in files:
                with suppress(FileNotFoundError):  # swept just now
                    if file.name.endswith((IMAGE, BASE, COMMON)):
                        linked[file.inode()] = file.stat().st_size
                    elif file.name.endswith(SUFFIX):
                        size += file.stat().st_size
    return size + sum(linked.values())
