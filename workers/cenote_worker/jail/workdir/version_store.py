"""The store of versions: contents of files, each once, and a list of entries per version.

Forked copies of the process share it, and each knows only what its original knew. So the truth is on disk, no name is
ever used twice, and a process that finds that it was forked forgets what it remembers of the store. A version equal
to the one before it is a hard link to the same list, so the file system counts the references.

Bytes are copied from file to file by reference if the file system can (Btrfs, XFS); holes stay holes.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from cenote_worker.jail import plain_json
from cenote_worker.jail.workdir.tree import TOP, PathEntry, Signature, Tree
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_PIECE = 2**30
_BUFFER = 2**20
_UNABLE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy(source: int, target: int, size: int, *, seeking: bool = True) -> None:
    """Make `target` have exactly the first `size` bytes of `source`. Raises OSError, of a full disk too.

    seeking: find holes, which moves the position of `source`; else they are copied as zeros.
    """
    os.ftruncate(target, 0)
    os.ftruncate(target, size)
    if not seeking:
        _copy_piece(source, target, 0, size)
        return
    position = 0
    while position < size:
        try:
            begin = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = min(os.lseek(source, begin, os.SEEK_HOLE), size)
        _copy_piece(source, target, begin, end)
        position = max(end, begin + 1)


def _copy_piece(source: int, target: int, begin: int, end: int) -> None:
    try:
        while begin < end:
            done = os.copy_file_range(source, target, min(end - begin, _PIECE), begin, begin)
            if done == 0:  # the file has become shorter; the caller checks for that
                return
            begin += done
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        _copy_by_hand(source, target, begin, end)


def _copy_by_hand(source: int, target: int, begin: int, end: int) -> None:
    while begin < end:
        piece = os.pread(source, min(end - begin, _BUFFER), begin)
        if not piece:
            return
        begin += os.pwrite(target, piece, begin)


_listdir, _fstat = os.listdir, os.fstat

_LIST = ".json"
"""How the name of a version's list ends, after its number."""

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoRoom(Exception):
    """A content is not kept; the message is the reason."""


class VersionLost(Exception):
    """A version was never kept, was dropped, or its list is corrupt."""


class VersionStore:
    """Everything below one folder, which is made when first needed.

    max_bytes: of all contents together. max_file: of one. Copies never take more than half of the free space either:
    the disk is the user's.
    """

    def __init__(self, folder: str, *, max_bytes: int, max_file: int) -> None:
        self.folder = Path(folder)
        self._contents, self._versions = Path(folder, "contents"), Path(folder, "versions")
        self._max_bytes, self._max_file = max_bytes, max_file
        self._process = 0
        self._uses: Counter[str] = Counter()
        self._had: dict[int, set[str]] = {}
        """The contents of versions that this process has saved or read."""
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    # -- contents --

    def add(self, file: int, *, seeking: bool = True) -> str:
        """Copy a file's bytes. Returns the content's name. seeking: see `copy`. Raises NoRoom."""
        status = _fstat(file)
        occupied = status.st_blocks * 512
        self._check_room(occupied)
        name = os.urandom(12).hex()
        path = self._contents / name
        try:
            target = os.open(path, _CREATE, 0o600)
            try:
                copy(file, target, status.st_size, seeking=seeking)
            finally:
                os.close(target)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise NoRoom(f"it cannot be copied: {error.strerror}") from None
        self._account(name, occupied)
        return name

    def _check_room(self, size: int) -> None:
        if size > self._max_file:
            raise NoRoom(f"it has more than {self._max_file} bytes")
        if self.bytes() + size > self._max_bytes:
            raise NoRoom(f"all versions together have at most {self._max_bytes} bytes")
        disk = os.statvfs(self._contents)
        if size > disk.f_bavail * disk.f_frsize // 2:
            raise NoRoom("the disk is nearly full")

    def kept(self) -> Container[str]:
        """The names of all contents."""
        self._learn()
        return self._sizes

    def write(self, content: str, file: int) -> None:
        """Make a file have these bytes. Raises OSError."""
        source = os.open(self._contents / content, _READ)
        try:
            copy(source, file, _fstat(source).st_size)
        finally:
            os.close(source)

    def discard(self, contents: Iterable[str]) -> None:
        """Remove contents that no version has."""
        for name in contents:
            if name not in self._uses:
                (self._contents / name).unlink(missing_ok=True)
                self._account(name, 0)

    def bytes(self) -> int:
        """Bytes on the disk of contents and lists."""
        self._learn()
        return self._bytes

    def _account(self, name: str, size: int) -> None:
        self._bytes += size - self._sizes.pop(name, 0)
        if size:
            self._sizes[name] = size

    # -- versions --

    def save(self, version: int, tree: Tree) -> None:
        """Keep a version, replacing one of the same number. Raises OSError."""
        self._learn()
        temporary = self._versions / f".{os.urandom(6).hex()}"
        try:
            temporary.write_bytes(plain_json.dumps(tree).encode())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        gone = self._forget(version)
        temporary.rename(self._path(version))
        self._had[version] = _contents_of(tree)
        self._uses.update(self._had[version])
        self._account(*_size_of_list(self._path(version)))
        self.discard(gone)

    def save_same(self, version: int, other: int) -> None:
        """Keep a version that is equal to another one. Raises OSError."""
        self._learn()
        if version != other:
            self.drop(version)
            self._path(version).hardlink_to(self._path(other))

    def has(self, version: int) -> bool:
        return os.path.exists(f"{self._versions}/{version}{_LIST}")  # noqa: PTH110  (asked after each cell)

    def numbers(self) -> list[int]:
        """The numbers of all versions."""
        stems = [name.removesuffix(_LIST) for name in self._names()]
        return [int(stem) for stem in stems if stem.isdigit()]

    def load(self, version: int) -> Tree:
        """Raises VersionLost."""
        try:
            return _from_json(self._path(version).read_bytes())
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise VersionLost(f"version {version} of the working directory is lost: {error}") from None

    def drop(self, version: int) -> None:
        """Free what only this version has. Does nothing when there is no such version."""
        self._learn()
        gone = self._forget(version)
        self._path(version).unlink(missing_ok=True)
        self.discard(gone)

    def _forget(self, version: int) -> list[str]:
        """Uncount a version's contents, if this is the last name of its list. Returns those that are no longer
        used."""
        had = self._had.pop(version, None)
        with suppress(OSError, VersionLost):
            if self._path(version).stat().st_nlink == 1:
                contents = _contents_of(self.load(version)) if had is None else had
                self._uses.subtract(contents)
                self._account(_size_of_list(self._path(version))[0], 0)
                unused = [name for name in contents if self._uses[name] <= 0]
                for name in unused:
                    del self._uses[name]
                return unused
        return []

    def _names(self) -> list[str]:
        """Of all lists. Empty while there is no folder."""
        with suppress(FileNotFoundError):
            return [name for name in _listdir(self._versions) if name.endswith(_LIST)]
        return []

    def _path(self, version: int) -> Path:
        return self._versions / f"{version}{_LIST}"

    def _learn(self) -> None:
        """Read the store, if this process has not yet. Contents without a version are removed: the process that made
        them died."""
        if self._process == os.getpid() and os.path.isdir(self._contents):  # noqa: PTH112  (after each cell)
            return
        for folder in (self._contents, self._versions):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = os.getpid()
        paths = [self._versions / name for name in self._names()]
        lists = {path.stat().st_ino: path for path in paths}
        self._uses, self._had = Counter(), {}
        for path in lists.values():
            with suppress(VersionLost):
                self._uses.update(_contents_of(self.load(int(path.stem))))
        contents = {path.name: path.stat().st_blocks * 512 for path in self._contents.iterdir()}
        self._sizes = contents | dict(map(_size_of_list, lists.values()))
        self._bytes = sum(self._sizes.values())
        self.discard(contents)


def _size_of_list(path: Path) -> tuple[str, int]:
    """A name that is the same for all links of a list, and the bytes it takes."""
    status = path.stat()
    return f"list {status.st_ino}", status.st_blocks * 512


def _contents_of(tree: Tree) -> set[str]:
    """A file with two names has one content."""
    return {entry.content for entry in tree.values() if entry.content and entry.kind == "file"}


def _from_json(data: bytes) -> Tree:
    """Parses a file that may have been changed by a cell. Raises ValueError, TypeError or AttributeError."""
    tree = {
        str(path): PathEntry(Signature(*map(int, signature)), str(content), str(reason))
        for path, (signature, content, reason) in plain_json.loads(data).items()
    }
    if TOP not in tree or any({"..", "."} & set(path.split("/")) for path in tree):
        raise ValueError("its list is spoilt")
    return tree
