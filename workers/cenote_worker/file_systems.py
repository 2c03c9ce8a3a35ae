"""What kind of file system a file is on."""

from __future__ import annotations

import os


def kind_of(device: int) -> str:
    """The kernel's name of it; empty where that cannot be said. device: as `stat` tells of a file."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1]
    return ""
