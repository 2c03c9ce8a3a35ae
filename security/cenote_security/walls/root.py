"""The folders that one jail has to itself: working directory, `/tmp`, `/dev/shm`, `/proc`, and its view of CPUs.

Runs as pid 1 of the jail, in its own user, mount and pid namespaces, on a copy of the zygote's template.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_security.policy import SandboxPolicy
from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls.template import (
    CPU_CHOICES,
    CPU_FOLDER,
    EMPTY_FOLDER,
    WORKDIR,
    Pending,
    is_writable,
    make_mount_point,
)
from cenote_security.walls.wall import building

BYTES_PER_INODE: Final = 4096
"""How a disk limit in bytes bounds the number of files: one per page, as if none were smaller."""

_MIN_INODES: Final = 1024
_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_HIDDEN_FILES: Final = ("cmdline", "config.gz", "kallsyms", "kcore", "key-users", "keys", "latency_stats",
                        "modules", "sched_debug", "sysrq-trigger", "timer_list", "vmallocinfo")  # fmt: skip
_HIDDEN_FOLDERS: Final = ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi", "sysvipc", "tty")
_WRITABLE: Final = (("workspace", 0o700, WORKDIR), ("shm", 0o1777, "/dev/shm"), ("tmp", 0o1777, "/tmp"))


@dataclass(frozen=True, kw_only=True)
class Furniture:
    """What every jail of a zygote mounts alike, looked up once. cpu_choices: how many CPUs the host has.

    masks: `(source, target)` of what is laid over parts of `/proc`. pending: what the template could not place.
    """

    masks: tuple[tuple[str, str], ...]
    pending: Pending
    cpu_choices: int


def survey(pending: Pending) -> Furniture:
    """Look at the template, from inside."""
    files = [("/dev/null", f"/proc/{name}") for name in _HIDDEN_FILES]
    folders = [(EMPTY_FOLDER, f"/proc/{name}") for name in _HIDDEN_FOLDERS]
    masks = tuple(mask for mask in (*files, *folders) if Path(mask[1]).exists())
    return Furniture(masks=masks, pending=pending, cpu_choices=len(list(Path(CPU_CHOICES).iterdir())))


def furnish(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Mount everything that is this jail's own and name the machine. Raises WallError."""
    furnish_folders(furniture, policy)
    with building("mount /proc"):
        _mount_proc(furniture)
    show_cpus(furniture, policy)
    with building("set the host name"):
        socket.sethostname("cenote")
    os.chdir(WORKDIR)


def furnish_folders(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Mount the folders that the jail may write to. Raises WallError."""
    with building("mount the working directory"):
        _mount_disk(policy)
    _place(furniture.pending, policy)


def show_cpus(furniture: Furniture, policy: SandboxPolicy) -> None:
    """Let the C library count as many processors as the policy gives. Raises WallError."""
    with building("show the policy's CPUs"):
        shown = min(policy.whole_cpus, furniture.cpu_choices)
        libc.mount(f"{CPU_CHOICES}/{shown}", CPU_FOLDER, None, libc.MS_BIND)


def _place(pending: Pending, policy: SandboxPolicy) -> None:
    for source, target in pending.mounts:
        with building(f"mount {target}"):
            if is_writable(target):
                make_mount_point(target, is_folder=Path(source).is_dir())
            libc.mount(source, target, None, libc.MS_BIND | libc.MS_REC)
            if policy.noexec and target in pending.written:
                libc.mount_setattr(target, libc.MOUNT_ATTR_NOEXEC)
    for path, target in pending.links.items():
        with building(f"link {path}"):
            link = Path(path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _mount_disk(policy: SandboxPolicy) -> None:
    """One tmpfs for all writable folders: the limit holds for them together."""
    disk = policy.disk_bytes
    options = f"mode=0755,size={disk},nr_inodes={max(_MIN_INODES, disk // BYTES_PER_INODE)}"
    libc.mount("tmpfs", "/tmp", "tmpfs", _SAFE | (libc.MS_NOEXEC if policy.noexec else 0), options)
    os.umask(0)
    for name, mode, target in _WRITABLE:
        folder = f"/tmp/{name}"
        os.mkdir(folder, mode)  # noqa: PTH102  (this is the hot path of a start)
        libc.mount(folder, target, None, libc.MS_BIND)
    os.umask(0o077)


def _mount_proc(furniture: Furniture) -> None:
    """Read-only, so that nothing in it can be set; processes that may not be traced do not show."""
    flags = _SAFE | libc.MS_NOEXEC | libc.MS_RDONLY
    libc.mount("proc", "/proc", "proc", flags, "hidepid=invisible")
    for source, target in furniture.masks:
        libc.mount(source, target, None, libc.MS_BIND)
