"""Hints for files and programs that are not there or may not be touched."""

from __future__ import annotations

import errno
import os
import sys
from itertools import islice

from cenote_worker.in_jail.nearest import nearest
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST_ENTRIES = 2_000
_FEW = 10
_LONGEST_FOLDER = 200

_errno_of = OSError.__dict__["errno"].__get__
_filename_of = OSError.__dict__["filename"].__get__
_scandir = os.scandir
_environment = os.environ
_executable = sys.executable


def file_hint(error: BaseException) -> str:
    """Files with nearly that name, or what the folder holds; where writing is allowed."""
    path = _filename_of(error)
    if type(path) is bytes:
        path = os.fsdecode(path)
    if type(path) is not str:
        return ""
    number = _errno_of(error)
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        # Not `/tmp` where a jail shares that with the host.
        temporary = _environment.get("TMPDIR", "/tmp")[:_LONGEST_FOLDER]
        return f"only the working directory and {temporary} can be written"
    return _missing(path) if number in (errno.ENOENT, errno.ENOTDIR) else ""


def program_hint(error: BaseException) -> str:
    """For a program without a folder that nothing on the path is called; empty for any other error."""
    name = _filename_of(error)
    if _errno_of(error) != errno.ENOENT or type(name) is not str or os.sep in name or not name:
        return ""
    return f"no program of that name is installed here, and sys.executable is {_executable}"


def _missing(path: str) -> str:
    folder, name = os.path.split(path)
    names = _entries(folder or ".")
    shown = folder or "the working directory"
    if names is None:
        return f"there is no folder {folder}"
    if found := nearest(name, names):
        return f"nearest in {shown}: {', '.join(found)}"
    if not names:
        return f"{shown} is empty"
    more = f", ... {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{shown} holds: {', '.join(sorted(names)[:_FEW])}{more}"


def _entries(folder: str) -> list[str] | None:
    try:
        with _scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except OSError:
        return None
