"""Memory files that a process has mapped. They hold memory when nobody has a descriptor of them any more, too."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping


def mapped_files(pid: int, device: int) -> Mapping[int, str]:
    """`{inode: a path that leads to it}`, of files on `device`. Of a process that has gone, nothing.

    Only the privileged may follow the paths; stat of them raises PermissionError for others.
    """
    mark = _name_of(device)
    found = {}
    for fields in _fields(f"/proc/{pid}/maps", mark):
        start, _, end = fields[0].partition(b"-")
        found[int(fields[4])] = f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}"
    return found


def _fields(path: str, mark: bytes) -> Iterator[list[bytes]]:
    """The lines of files on a device, split. Most processes have none, which is seen at once."""
    try:
        with open(path, "rb") as maps:
            text = maps.read()
    except OSError:
        return
    if b" " + mark + b" " in text:
        for line in text.splitlines():
            fields = line.split(maxsplit=5)
            if fields[3] == mark:
                yield fields


def touched(pid: int, device: int, known: Collection[int]) -> int:
    """Bytes of files on `device` that a process has read or written through its mappings, shared ones by proportion.

    For who may not follow the paths: what was filled by other means and only mapped is not in it. known: inodes of
    files that are left out.
    """
    mark = _name_of(device)
    total = share = 0
    counts = False
    try:
        with open(f"/proc/{pid}/smaps", "rb") as lines:
            for line in lines:
                fields = line.split(maxsplit=5)
                if not fields[0].endswith(b":"):
                    counts = fields[3] == mark and int(fields[4]) not in known
                elif counts and fields[0] == b"Pss:":
                    share = int(fields[1])
                elif counts and fields[0] == b"Anonymous:":  # its own copies, which are private memory
                    total += max(share - int(fields[1]), 0)
    except OSError:
        return 0
    return total * 1024


def _name_of(device: int) -> bytes:
    return f"{os.major(device):02x}:{os.minor(device):02x}".encode()
