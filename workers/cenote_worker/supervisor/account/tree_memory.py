"""How much memory the processes of a jail use, added up from outside, where no control group counts it.

This counts private pages, swapped ones and the tables of all pages, shared ones by proportion, bytes that wait in
sockets and pipes, and files in memory: those that a descriptor is open on, mapped ones, and those on the jail's disk.
A memory file that is only in a socket's queue is missed; of one that is only mapped, a process that is not root sees
only the pages touched through the mapping. Of a process that runs a program which its user may not read, only root
sees the open files.
"""

from __future__ import annotations

import array
import fcntl
import math
import os
import random
import socket
import stat
import struct
import termios
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.supervisor.account.worker_process import anonymous_resident
from cenote_worker.zygote.processes import descendants


def mapped_files(pid: int, device: int) -> Mapping[int, str]:
    """`{inode: a path that leads to it}`, of files on `device`. Empty for a process that has ended.

    Only privileged processes may follow the paths; stat of them raises PermissionError for others.
    """
    mark = _name_of(device)
    found = {}
    for fields in _fields(f"/proc/{pid}/maps", mark):
        start, _, end = fields[0].partition(b"-")
        found[int(fields[4])] = f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}"
    return found


def _fields(path: str, mark: bytes) -> Iterator[list[bytes]]:
    """The lines of files on a device, split. Most processes have none, which one search over the text shows."""
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

    For callers that may not follow the paths: pages filled by other means and only mapped are not counted. known:
    inodes of files that are left out.
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


MAX_DESCRIPTORS: Final = 2_000
"""Descriptors looked at per turn. Of a jail with more, a random sample is looked at: measuring must stay short."""

_BLOCK: Final = 512

_SPARSE: Final = 8
"""A process whose page tables take one part in this number of the limit, instead of one in 512 of its memory, has
touched pages here and there. To tell which of them it shares, the kernel walks these tables, for seconds."""

_SO_MEMINFO: Final = 55
"""Since Linux 4.12: the memory of a socket, whatever its family."""

_MEMINFO: Final = struct.Struct("9I")
_READ, _WRITTEN, _QUEUED, _BACKLOG = 0, 2, 5, 7


def memory_of(
    warden: int, disk: int, spared: int, limit: int, mapped_only: int, lent: Collection[int] = ()
) -> int:
    """Bytes; above `limit` exactly, below it an upper bound, which is many times faster to compute.

    disk: a descriptor of the jail's own disk in memory, -1 when it has none. spared: bytes the warden had when it
    started; they are the zygote's, and only root may see that they are shared. mapped_only: see the function of that
    name. lent: inodes of files that processes of the jail have open, and that count against another owner.
    """
    pids = descendants(warden)
    own = max(anonymous_resident(warden) - spared, 0)
    opened = _opened([warden, *pids], _memory_device())
    files = _disk_used(disk) + sum(opened.files[inode] for inode in opened.files.keys() - lent) + mapped_only
    own += _under_way(opened)
    sizes = {pid: found for pid in pids if (found := _Sizes.of(pid))}
    bound = own + files + sum(each.all for each in sizes.values())
    if bound <= limit:
        return bound
    tables = sum(each.tables for each in sizes.values())
    certain = own + files + tables + max((each.private for each in sizes.values()), default=0)
    if certain > limit:
        return certain
    private, mapped = own + tables, 0
    for pid, each in sizes.items():
        is_sparse = each.tables > limit // _SPARSE
        anonymous, shared = (None if is_sparse else _proportional(pid)) or (each.private, each.shared)
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
    known = {*_opened([warden, *pids], device).files, *spared}
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


def hidden(warden: int) -> frozenset[int]:
    """Processes whose descriptors this one may not see: they run a program that their user may not read."""
    return frozenset(pid for pid in descendants(warden) if _hides(pid))


def _hides(pid: int) -> bool:
    try:
        os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except PermissionError:
        sizes = _Sizes.of(pid)
        return (
            sizes is not None and sizes.tables > 0
        )  # a process that has ended, and was not waited for, has no memory
    except OSError:
        return False
    return False


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of a process, each page in full. Any process may read them. private: swapped pages too."""

    private: int
    shared: int
    tables: int

    @classmethod
    def of(cls, pid: int) -> _Sizes | None:
        found = _sizes(f"/proc/{pid}/status", b"RssAnon", b"VmSwap", b"RssShmem", b"VmPTE")
        return cls(found[0] + found[1], found[2], found[3]) if found else None

    @property
    def all(self) -> int:
        return self.private + self.shared + self.tables


def _proportional(pid: int) -> tuple[int, int] | None:
    """Private and shared pages by proportion; None when the process may not be read."""
    found = _sizes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon", b"SwapPss", b"Pss_Shmem")
    return (found[0] + found[1], found[2]) if found else None


def _sizes(path: str, *names: bytes) -> list[int] | None:
    """Sizes that a file of `/proc` gives in kilobytes; None when it cannot be read."""
    sizes = dict.fromkeys(names, 0)
    try:
        with open(path, "rb") as lines:
            for line in lines:
                name, _, rest = line.partition(b":")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) * 1024
    except OSError:
        return None
    return list(sizes.values())


def _disk_used(disk: int) -> int:
    if disk < 0:
        return 0
    with suppress(OSError):
        found = os.fstatvfs(disk)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


@dataclass(slots=True)
class _Opened:
    """files: bytes of those in memory, by inode. links: the path of one descriptor of each socket and pipe, by inode.

    seen: descriptors of links that were looked at; several may lead to one link. share: the part of all descriptors
    that was looked at.
    """

    files: dict[int, int] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)
    seen: int = 0
    share: float = 1.0

    @property
    def factor(self) -> float:
        """Estimated number of links for each one seen, computed from how often a link was seen again."""
        low, high = float(len(self.links)), len(self.links) / self.share
        if self.share == 1 or not self.links:
            return 1.0
        for _ in range(20):
            middle = (low + high) / 2
            if middle * -math.expm1(-self.seen / middle) < len(self.links):
                low = middle
            else:
                high = middle
        return high / len(self.links)


def _opened(pids: Iterable[int], device: int) -> _Opened:
    """The files, sockets and pipes that the processes have open."""
    paths = list(_descriptors(pids))
    opened = _Opened(share=min(MAX_DESCRIPTORS / max(len(paths), 1), 1.0))
    for path in _some(paths):
        with suppress(OSError):
            found = os.stat(path)  # noqa: PTH116  (thousands of times)
            if stat.S_ISREG(found.st_mode) and found.st_dev == device:
                opened.files[found.st_ino] = found.st_blocks * _BLOCK
            elif stat.S_ISSOCK(found.st_mode) or stat.S_ISFIFO(found.st_mode):
                opened.links[found.st_ino] = path
                opened.seen += 1
    return opened


def _under_way(opened: _Opened) -> int:
    """Bytes in the kernel that were written to sockets and pipes and not read yet."""
    total, pidfds = 0, dict[int, int]()
    try:
        for path in opened.links.values():
            _, _, pid, _, number = path.split("/")
            with suppress(OSError):  # the process has ended, or may not be seen
                pidfd = pidfds.setdefault(int(pid), -1)
                if pidfd < 0:
                    pidfd = pidfds[int(pid)] = os.pidfd_open(int(pid))
                total += _waiting(libc.pidfd_getfd(pidfd, int(number)))
    finally:
        for pidfd in pidfds.values():
            if pidfd >= 0:
                os.close(pidfd)
    return int(total * opened.factor)


def _waiting(link: int) -> int:
    """The bytes of one link; see `_under_way`. Takes the descriptor over. For a pipe that is not empty, its full
    capacity: each write may have a page of its own. Raises OSError."""
    try:
        if stat.S_ISSOCK(os.fstat(link).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(link)) as found:
                sizes = _MEMINFO.unpack(found.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
            return int(sizes[_READ] + max(sizes[_WRITTEN], sizes[_QUEUED]) + sizes[_BACKLOG])
        filled = array.array("i", [0])
        fcntl.ioctl(link, termios.FIONREAD, filled)
        return fcntl.fcntl(link, fcntl.F_GETPIPE_SZ) if filled[0] else 0
    finally:
        os.close(link)


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


def _some(paths: list[str]) -> list[str]:
    return paths if len(paths) <= MAX_DESCRIPTORS else random.sample(paths, MAX_DESCRIPTORS)
