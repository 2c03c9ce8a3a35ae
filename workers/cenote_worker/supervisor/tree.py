"""How much memory the processes of a jail use, added up from outside, where no control group does it.

Counted are private pages, shared ones by proportion, and files in memory: mapped ones, those that a descriptor is
open on, those on the jail's own disk. A memory file that is only in a socket's queue is not seen; of one that is only
mapped, who is not root sees what was touched through the mapping.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from cenote_worker.supervisor.mapped_files import mapped_files, touched
from cenote_worker.supervisor.worker_process import anonymous_resident
from cenote_worker.zygote.usage import descendants

MAX_DESCRIPTORS: Final = 2_000
"""Looked at per turn. A jail with more has some of them looked at by chance: looking must stay short."""

_BLOCK: Final = 512


def memory_of(
    warden: int, disk: int, spared: int, limit: int, mapped_only: int, lent: Collection[int] = ()
) -> int:
    """Bytes; above `limit` exactly, below it an upper bound, which is many times faster to have.

    disk: a descriptor of the jail's own disk in memory, -1 when it has none. spared: what the warden had when it
    started; it is the zygote's, and only root may see that it is shared. mapped_only: see the function of that name.
    lent: inodes of files that processes of the jail have open, and that somebody else pays for.
    """
    pids = descendants(warden)
    own = max(anonymous_resident(warden) - spared, 0)
    open_files = _open_files([warden, *pids], _memory_device())
    files = _disk_used(disk) + sum(open_files[inode] for inode in open_files.keys() - lent) + mapped_only
    bound = own + files + sum(sum(_resident(pid)) for pid in pids)
    if bound <= limit:
        return bound
    private, mapped = own, 0
    for pid in pids:
        anonymous, shared = _proportional(pid)
        private += anonymous
        mapped += shared
    return private + max(mapped, files)


def mapped_by(pid: int) -> frozenset[int]:
    """The inodes of the memory files that a process has mapped."""
    return frozenset(mapped_files(pid, _memory_device()))


def mapped_only(warden: int, spared: Collection[int]) -> int:
    """Bytes of the memory files that are mapped and that no descriptor is open on. Takes a millisecond a process.

    spared: inodes of files that are not the jail's.
    """
    pids, device = descendants(warden), _memory_device()
    known = {*_open_files([warden, *pids], device), *spared}
    places = {inode: path for pid in pids for inode, path in mapped_files(pid, device).items()}
    total, hidden = 0, False
    for inode in places.keys() - known:
        try:
            total += os.stat(places[inode]).st_blocks * _BLOCK  # noqa: PTH116
        except PermissionError:
            hidden = True
        except OSError:
            continue
    return total + (sum(touched(pid, device, known) for pid in pids) if hidden else 0)


def _resident(pid: int) -> tuple[int, int]:
    """Private and shared memory of a process, each page in full. Anybody may read it."""
    return _sizes(f"/proc/{pid}/status", b"RssAnon:", b"RssShmem:") or (0, 0)


def _proportional(pid: int) -> tuple[int, int]:
    """The same, shared pages by proportion; in full when the process may not be read."""
    return _sizes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", b"Pss_Shmem:") or _resident(pid)


def _sizes(path: str, *names: bytes) -> tuple[int, int] | None:
    """Two sizes that a file of `/proc` gives in kilobytes; None when it cannot be read."""
    sizes = dict.fromkeys(names, 0)
    try:
        with open(path, "rb") as lines:
            for line in lines:
                name, _, rest = line.partition(b":")
                if name + b":" in sizes:
                    sizes[name + b":"] = int(rest.split()[0]) * 1024
    except OSError:
        return None
    private, shared = sizes.values()
    return private, shared


def _disk_used(disk: int) -> int:
    if disk < 0:
        return 0
    with suppress(OSError):
        found = os.fstatvfs(disk)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


def _open_files(pids: Iterable[int], device: int) -> dict[int, int]:
    """Bytes by inode of the files in memory that the processes have open."""
    sizes: dict[int, int] = {}
    for path in _some(_descriptors(pids)):
        with suppress(OSError):
            found = os.stat(path)  # noqa: PTH116  (thousands of times)
            if stat.S_ISREG(found.st_mode) and found.st_dev == device:
                sizes[found.st_ino] = found.st_blocks * _BLOCK
    return sizes


def _memory_device() -> int:
    """The one file system that all memory files of the machine are on."""
    descriptor = os.memfd_create("cenote-device")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _descriptors(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                yield f"/proc/{pid}/fd/{name}"


def _some(paths: Iterable[str]) -> list[str]:
    found = list(paths)
    return found if len(found) <= MAX_DESCRIPTORS else random.sample(found, MAX_DESCRIPTORS)
