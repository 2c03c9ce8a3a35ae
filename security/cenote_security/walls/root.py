"""The folders that one jail has to itself: working directory, `/tmp`, `/dev/shm`, `/proc`, and its view of CPUs.

Runs as pid 1 of the jail, in its own user, mount and pid namespaces, on a copy of the zygote's template.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls.environment import whole_cpus
from cenote_security.walls.template import CPU_CHOICES, CPU_FOLDER, EMPTY_FOLDER, WORKDIR
from cenote_security.walls.wall import building

BYTES_PER_INODE: Final = 4096
"""How a disk limit in bytes bounds the number of files: one per page, as if none were smaller."""

_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_HIDDEN_FILES: Final = ("cmdline", "config.gz", "kallsyms", "kcore", "key-users", "keys", "latency_stats",
                        "modules", "sched_debug", "sysrq-trigger", "timer_list", "vmallocinfo")  # fmt: skip
_HIDDEN_FOLDERS: Final = ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi", "sysvipc", "tty")


def furnish(*, disk: int, cpus: float) -> None:
    """Mount everything that is this jail's own and name the machine. Raises WallError."""
    with building("mount the working directory"):
        _mount_disk(disk)
    with building("mount /proc"):
        _mount_proc()
    with building("show the policy's CPUs"):
        _mount_cpus(cpus)
    with building("set the host name"):
        socket.sethostname("cenote")
    os.chdir(WORKDIR)


def _mount_disk(disk: int) -> None:
    """One tmpfs for all writable folders: the limit holds for them together."""
    options = f"mode=0755,size={disk},nr_inodes={max(1024, disk // BYTES_PER_INODE)}"
    libc.mount("tmpfs", "/tmp", "tmpfs", _SAFE, options)
    for name, mode, target in (
        ("workspace", 0o700, WORKDIR),
        ("shm", 0o1777, "/dev/shm"),
        ("tmp", 0o1777, "/tmp"),
    ):
        folder = f"/tmp/{name}"
        os.mkdir(folder)
        os.chmod(folder, mode)
        libc.mount(folder, target, None, libc.MS_BIND)


def _mount_proc() -> None:
    """Read-only, so that nothing in it can be set; processes that may not be traced do not show."""
    flags = _SAFE | libc.MS_NOEXEC | libc.MS_RDONLY
    libc.mount("proc", "/proc", "proc", flags, "hidepid=invisible")
    for name in filter(_exists_in_proc, _HIDDEN_FILES):
        libc.mount("/dev/null", f"/proc/{name}", None, libc.MS_BIND)
    for name in filter(_exists_in_proc, _HIDDEN_FOLDERS):
        libc.mount(EMPTY_FOLDER, f"/proc/{name}", None, libc.MS_BIND)


def _exists_in_proc(name: str) -> bool:
    return os.path.exists(f"/proc/{name}")


def _mount_cpus(cpus: float) -> None:
    """Bind the folder that says as many processors as the policy, if the host has that many."""
    choice = f"{CPU_CHOICES}/{whole_cpus(cpus)}"
    if not os.path.exists(choice):
        choice = f"{CPU_CHOICES}/{len(os.listdir(CPU_CHOICES))}"
    libc.mount(choice, CPU_FOLDER, None, libc.MS_BIND)
