"""Working folders on the host, for the levels that have no private root: made per jail, removed with it.

One base folder per zygote, below the host's temporary folder, held by a file lock: a base whose lock is free belongs
to a zygote that was killed, and the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cenote_security.walls.level import Home

_PREFIX: Final = "cenote-jails-"
_LOCK: Final = "lock"


class Folders:
    """The base folder of one zygote. Others may pass through it, but list nothing."""

    def __init__(self) -> None:
        sweep()
        self.base, self._lock = _made_locked()
        self.base.chmod(0o711)

    def home(self, number: int) -> Home:
        return Home(workdir=f"{self.base}/{number}/workspace", temporary=f"{self.base}/{number}/tmp")

    def root(self, number: int) -> Path:
        """What holds both folders of a jail."""
        return self.base / str(number)

    def make(self, number: int, owner: int | None) -> None:
        """Make a jail's folders, for another user if `owner` is given."""
        home = self.home(number)
        for folder in (str(self.root(number)), home.workdir, home.temporary):
            path = Path(folder)
            path.mkdir(mode=0o700)
            if owner is not None:
                os.chown(path, owner, owner, follow_symlinks=False)  # its parent is the other user's already

    def remove(self, number: int) -> None:
        """Remove a jail's folders. All of its processes must be gone."""
        remove_tree(self.root(number))

    def close(self) -> None:
        remove_tree(self.base)


def sweep() -> None:
    """Remove the base folders of this user's zygotes that were killed."""
    for base in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with suppress(OSError):
            if base.lstat().st_uid == os.geteuid():
                _remove_abandoned(base)


def _made_locked() -> tuple[Path, int]:
    """Before it is locked, another process may sweep it as a killed zygote's: then another one is made."""
    while True:
        base = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(base / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (base / _LOCK).exists():
            return base, lock
        os.close(lock)


def _remove_abandoned(base: Path) -> None:
    """Holds the lock until all is removed, as a waiting process then sees. Raises OSError when the lock is taken."""
    lock = os.open(base / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(base)
    finally:
        os.close(lock)


def remove_tree(top: Path) -> None:
    """Remove a folder that hostile code has filled: any depth, any names, no symbolic link followed.

    Folders inside folders are moved up beside their parent before that is removed, so that neither the stack nor the
    number of open descriptors grows with the depth.
    """
    with suppress(FileNotFoundError):
        with _opened(top, None) as folder:
            moved = 0
            while entries := os.listdir(folder):  # noqa: PTH208  (a descriptor)
                for name in entries:
                    moved = _remove_entry(name, folder, moved)
        top.rmdir()


def _remove_entry(name: str, folder: int, moved: int) -> int:
    """Remove one entry of the top folder, after moving the folders in it up. Gives the next free number."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return moved
    with _opened(name, folder) as inner:
        for child in os.listdir(inner):  # noqa: PTH208
            if stat.S_ISDIR(os.stat(child, dir_fd=inner, follow_symlinks=False).st_mode):
                moved = _move_up(child, inner, folder, moved)
            else:
                os.unlink(child, dir_fd=inner)
    os.rmdir(name, dir_fd=folder)
    return moved


def _move_up(child: str, inner: int, folder: int, moved: int) -> int:
    """Rename a folder into the top one, under a name that is free there."""
    while True:
        moved += 1
        with suppress(FileNotFoundError):
            os.stat(f".{moved}", dir_fd=folder, follow_symlinks=False)
            continue
        with _opened(child, inner):  # renaming a folder writes its `..`, which needs the right to write to it
            pass
        os.rename(child, f".{moved}", src_dir_fd=inner, dst_dir_fd=folder)
        return moved


@contextmanager
def _opened(path: Path | str, parent: int | None) -> Iterator[int]:
    """A folder, made accessible by descriptor: by name, chmod(2) follows a link that takes the folder's place."""
    place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{place}").chmod(0o700)
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield folder
    finally:
        os.close(folder)
