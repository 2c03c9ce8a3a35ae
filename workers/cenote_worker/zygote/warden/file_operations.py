"""File operations in the jail, done by a process that has the walls and rights of a program.

Results go to standard output, as bytes or a JSON object a line; input comes on standard input; failures go to
standard error, as JSON. Links are followed as any program follows them, except for the last part of a path that is
described, replaced or removed.
"""

# A Path would change the path: it drops `.`, and a slash at the end.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH112, PTH114, PTH119, PTH120

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

CHUNK: Final = 256 * 1024
MOST_ENTRIES: Final = 100_000
"""Entries of one listing, or of one scan of a watched folder."""

REFUSED: Final = 1
"""Exit code where standard error says why."""

_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

Work = Mapping[str, object]
Entry = dict[str, object]


def carry_out(work: Work) -> int:
    """Carries out the work. Gives the exit code."""
    try:
        _OPERATIONS[str(work["op"])](work)
    except BrokenPipeError:  # the caller wants no more of it
        return 0
    except OSError as error:
        _fail(error.errno or errno.EIO, error.strerror or str(error))
        return REFUSED
    except (KeyError, TypeError, ValueError) as error:
        _fail(errno.EINVAL, f"{type(error).__name__}: {error}")
        return REFUSED
    return 0


def _fail(code: int, text: str) -> None:
    data = json.dumps({"errno": code, "text": text}).encode()
    os.write(2, data)


def _path(work: Work, key: str = "path") -> str:
    """The path; an empty one is the working directory."""
    return os.fspath(str(work[key])) or "."


def _number(work: Work, key: str) -> int:
    value = work[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is a number from 0 on")
    return value


def _say(entry: Entry) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")


def _described(path: str, name: str) -> Entry:
    found = os.lstat(path)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    target = ""
    if kind == "link":
        with suppress(OSError):
            target = str(Path(path).readlink())
    return {
        "name": name,
        "kind": kind,
        "size": found.st_size,
        "modified": found.st_mtime,
        "mode": stat.S_IMODE(found.st_mode),
        "target": target,
    }


# -- reading ----------------------------------------------------------------------------------------------


def _stat(work: Work) -> None:
    path = _path(work)
    _say(_described(path, os.path.basename(path.rstrip("/")) or path))


def _list(work: Work) -> None:
    """Each folder before what is in it, by name; `cut` when there is more."""
    limit = min(_number(work, "limit"), MOST_ENTRIES)
    top = _path(work)
    os.close(os.open(top, os.O_RDONLY | os.O_DIRECTORY))  # a file, or nothing, is no empty folder
    for number, (path, name) in enumerate(_below(top, "", _number(work, "depth"))):
        if number == limit:
            _say({"cut": True})
            return
        with suppress(FileNotFoundError):  # another process of the jail may remove it
            _say(_described(path, name))


def _below(folder: str, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        yield entry.path, f"{prefix}{entry.name}"
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, f"{prefix}{entry.name}/", depth - 1)


def _read(work: Work) -> None:
    offset, size = _number(work, "offset"), work.get("size")
    left = None if size is None else _number(work, "size")
    # A pipe must not be waited for.
    file = os.open(_path(work), os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    os.lseek(file, offset, os.SEEK_SET)
    while left is None or left > 0:
        data = os.read(file, CHUNK if left is None else min(CHUNK, left))
        if not data:
            return
        left = None if left is None else left - len(data)
        _write_all(1, data)


def _watch(work: Work) -> None:
    """Watches by polling: not every level lets a jail receive the kernel's change notifications."""
    top, every = _path(work), max(_number(work, "every_ms"), 10) / 1000
    depth = _number(work, "depth")
    os.close(os.open(top, os.O_RDONLY | os.O_DIRECTORY))
    before = _look(top, depth)
    _say({"event": "ready", "name": ""})
    sys.stdout.flush()
    while True:
        time.sleep(every)
        now = _look(top, depth)
        for name in sorted(before.keys() | now.keys()):
            if (event := _event(before.get(name), now.get(name))) is not None:
                _say({"event": event, "name": name})
        sys.stdout.flush()
        before = now


_Seen = tuple[int, int, int, int, int]


def _look(top: str, depth: int) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for path, name in _below(top, "", depth):
        if len(seen) == MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MOST_ENTRIES} entries cannot be watched")
        with suppress(OSError):
            found = os.lstat(path)
            is_folder = stat.S_ISDIR(found.st_mode)
            times = (0, 0) if is_folder else (found.st_mtime_ns, found.st_ctime_ns)
            seen[name] = found.st_ino, stat.S_IFMT(found.st_mode), 0 if is_folder else found.st_size, *times
    return seen


def _event(before: _Seen | None, now: _Seen | None) -> str | None:
    if before == now:
        return None
    if before is None:
        return "created"
    return "removed" if now is None else "changed"


# -- changing ---------------------------------------------------------------------------------------------


def _write(work: Work) -> None:
    """Writes a file from standard input, whole or not at all, with missing parent folders. The end of the input is
    the end of the file only if the announced size has come: otherwise the sender has gone.
    """
    path, expected = _path(work), work.get("size")
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise OSError(errno.EISDIR, "it names a folder; name the file")
    os.makedirs(folder or ".", mode=0o700, exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        raise OSError(errno.EISDIR, "it is a folder")
    if not work["overwrite"] and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    temporary = f"{folder or '.'}/.{os.urandom(8).hex()}.part"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        size = _take_in(file)
        if expected is not None and size != expected:
            raise OSError(errno.EIO, f"{size} bytes came of {expected}")
        if work["overwrite"]:
            os.replace(temporary, path)
        else:
            os.link(temporary, path, follow_symlinks=False)
            os.unlink(temporary)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(file)


def _take_in(file: int) -> int:
    size = 0
    while data := os.read(0, CHUNK):
        _write_all(file, data)
        size += len(data)
    return size


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _mkdir(work: Work) -> None:
    """Makes a folder with missing parents."""
    os.makedirs(_path(work), mode=0o700, exist_ok=bool(work["exist_ok"]))


def _move(work: Work) -> None:
    source, target = _path(work), _path(work, "to")
    os.lstat(source)
    if not work["overwrite"] and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if parent := os.path.dirname(target):
        os.makedirs(parent, mode=0o700, exist_ok=True)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)  # to another file system of the jail


def _remove(work: Work) -> None:
    path = _path(work)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    elif work["recursive"]:
        shutil.rmtree(path)
    else:
        os.rmdir(path)


_OPERATIONS: Final[Mapping[str, Callable[[Work], None]]] = {
    "stat": _stat,
    "list": _list,
    "read": _read,
    "watch": _watch,
    "write": _write,
    "mkdir": _mkdir,
    "move": _move,
    "remove": _remove,
}
