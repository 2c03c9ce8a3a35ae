"""The kind of file system of a file, and which paths are valid."""

from __future__ import annotations

import os
import sys
from typing import Final

from cenote_security.errors import UsageError


def check_path(path: str) -> None:
    """Raises UsageError for a path that no file of this machine can have, or that this process cannot name."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        # Using the UTF-8 bytes would name a file that a process with another locale does not find.
        remedy = (
            "" if encoding == "utf-8" else "run Python with PYTHONUTF8=1 or a locale such as C.UTF-8, or "
        )
        raise UsageError(
            f"{path!a} cannot be a path here, where names of files are {encoding}; {remedy}take another name"
        ) from None
    if "\0" in path:
        raise UsageError(f"{path!a} cannot be a path: it has a zero byte; take another name")


def kind_of(device: int) -> str:
    """The kernel's name of a file system; empty if unknown. device: as in the `stat` of a file."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1]
    return ""


_OF_THIS_MACHINE: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay", "tmpfs"}
)
"""File systems whose files last as long as they are mapped. Another machine may remove files of a network's."""


def is_of_this_machine(file: int) -> bool:
    """Whether an open file lasts as long as it is mapped."""
    return kind_of(os.fstat(file).st_dev) in _OF_THIS_MACHINE
