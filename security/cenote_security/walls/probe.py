"""What this machine has for jails, their limits and their snapshots: each facility tried, none assumed.

Beside the trials that levels rest on, one function for each facility, run in throwaway children of a fresh process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import select
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_security.walls import cgroups
from cenote_security.walls.facilities import Facilities, Facility
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.identity import forbid_new_privileges, map_into_new_namespace
from cenote_security.walls.interpreter import running
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.levels import runsc_unsafe
from cenote_security.walls.namespaces import open_host_proc
from cenote_security.walls.trials import NAMESPACES_REMEDY, Attempt, attempt, try_essentials

_PAGEMAP_SCAN: Final = 0xC060_6610
_PAGEMAP_SCAN_BYTES: Final = 96
_CGROUP_REMEDY: Final = (
    "Without control groups a watchdog holds the memory of a jail as a whole, with some delay. systemd: "
    "`Delegate=yes` and `DelegateSubgroup=` for the unit, or `systemd-run --user --scope`. Docker: a writable cgroup "
    "mount, `--cgroupns=private` with v2."
)


# -- namespaces and mounts, one by one --------------------------------------------------------------------


def _as_root_of_new_namespace() -> None:
    proc, uid, gid = open_host_proc(), os.geteuid(), os.getegid()
    libc.unshare(libc.CLONE_NEWUSER)
    map_into_new_namespace(proc, uid, gid, inside=0, inside_gid=0)


def _unsharing(kind: int) -> Attempt:
    def unshare() -> str:
        _as_root_of_new_namespace()
        libc.unshare(kind)
        return "with a user namespace"

    return unshare


def _user_namespace() -> str:
    _as_root_of_new_namespace()
    limit = Path("/proc/sys/user/max_user_namespaces").read_text().strip()
    return f"user.max_user_namespaces = {limit}"


def _mounting(kind: str) -> Attempt:
    def mount() -> str:
        _as_root_of_new_namespace()
        libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWPID)
        libc.mount("none", "/", None, libc.MS_REC | libc.MS_PRIVATE)
        return _in_child(lambda: libc.mount(kind, "/tmp", kind, libc.MS_NOSUID | libc.MS_NODEV))

    return mount


def _in_child(what: Callable[[], None]) -> str:
    """Run `what` in a child, which is in the pid namespace that its parent made."""
    child = os.fork()
    if child == 0:
        try:
            what()
        except OSError as error:
            os._exit(error.errno or errno.EINVAL)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(abs(code)))
    return "in a user namespace"


# -- processes and memory ---------------------------------------------------------------------------------


def _no_new_privileges() -> str:
    forbid_new_privileges()
    return "prctl"


def _memfd_sealing() -> str:
    memory = os.memfd_create("cenote", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(memory, b"sealed")
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    try:
        os.write(memory, b"more")
    except PermissionError:
        return "write, grow and shrink"
    raise OSError(errno.ENOTSUP, "a sealed file can be written")


def _pidfd() -> str:
    child = os.fork()
    if child == 0:
        os._exit(0)
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], 5)[0]:
        raise OSError(errno.ENOTSUP, "a pidfd does not tell of the end of its process")
    return "pidfd_open, poll"


def _children_in_proc() -> str:
    Path("/proc/thread-self/children").read_text()
    return "/proc/PID/task/TID/children"


def _fork_speed() -> str:
    size = 64 * 2**20
    memory = bytearray(size)
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0 if memory[-1] == 0 else 1)
    took = time.perf_counter() - started
    os.waitpid(child, 0)
    return f"64 MiB in {1000 * took:.1f} ms"


def _userfaultfd() -> str:
    handle = libc.userfaultfd(os.O_CLOEXEC | os.O_NONBLOCK)
    os.close(handle)
    return "with kernel faults" if os.geteuid() == 0 else "allowed"


def _pagemap_scan() -> str:
    """An argument of zeros is refused as invalid where the call exists, and unknown where it does not."""
    with open("/proc/self/pagemap", "rb") as pagemap:
        try:
            fcntl.ioctl(pagemap, _PAGEMAP_SCAN, bytes(_PAGEMAP_SCAN_BYTES))
        except OSError as error:
            if error.errno == errno.ENOTTY:
                raise
    return "tells which pages were written"


def _huge_pages() -> str:
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    chosen = modes[modes.index("[") + 1 : modes.index("]")]
    if chosen == "never":
        raise OSError(errno.ENOTSUP, "switched off: forks of large processes are slower")
    with mmap.mmap(-1, 4 * 2**20) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return chosen


# -- control groups ---------------------------------------------------------------------------------------


def _cgroup_v2() -> str:
    return cgroups.find_v2().describe()


def _cgroup_v1() -> str:
    return cgroups.find_v1().describe()


def _cpu_quota() -> str:
    site = cgroups.find_site()
    if "cpu" not in site.folders:
        raise OSError(errno.ENOTSUP, f"{site.describe()}, without the controller for CPU time")
    return f"by {site.version}"


ALL: Final[tuple[tuple[str, Attempt, str], ...]] = (
    ("user namespace", _user_namespace, NAMESPACES_REMEDY),
    ("mount namespace", _unsharing(libc.CLONE_NEWNS), NAMESPACES_REMEDY),
    ("pid namespace", _unsharing(libc.CLONE_NEWPID), NAMESPACES_REMEDY),
    ("net namespace", _unsharing(libc.CLONE_NEWNET), NAMESPACES_REMEDY),
    ("ipc namespace", _unsharing(libc.CLONE_NEWIPC), NAMESPACES_REMEDY),
    ("uts namespace", _unsharing(libc.CLONE_NEWUTS), NAMESPACES_REMEDY),
    ("cgroup namespace", _unsharing(libc.CLONE_NEWCGROUP), NAMESPACES_REMEDY),
    ("mount tmpfs", _mounting("tmpfs"), NAMESPACES_REMEDY),
    ("mount proc", _mounting("proc"), NAMESPACES_REMEDY),
    ("runsc", runsc_unsafe.describe, runsc_unsafe.REMEDY),
    ("no_new_privs", _no_new_privileges, "Needs Linux 3.5 or later."),
    ("memfd sealing", _memfd_sealing, "Needs Linux 3.17 or later."),
    ("pidfd", _pidfd, "Needs Linux 5.3 or later."),
    ("children in proc", _children_in_proc, "Needs a kernel with CONFIG_PROC_CHILDREN."),
    ("fork", _fork_speed, ""),
    ("huge pages", _huge_pages, "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"),
    (
        "userfaultfd",
        _userfaultfd,
        "Root, or `sysctl vm.unprivileged_userfaultfd=1`; only snapshots could use it.",
    ),
    ("pagemap scan", _pagemap_scan, "Needs Linux 6.7 or later; only snapshots could use it."),
    ("cgroup v2", _cgroup_v2, _CGROUP_REMEDY),
    ("cgroup v1", _cgroup_v1, _CGROUP_REMEDY),
    (
        "cpu quota",
        _cpu_quota,
        "Without it a jail's threads may use as many CPUs as the machine has. " + _CGROUP_REMEDY,
    ),
)
"""name, attempt, remedy."""


_PROBE_SECONDS: Final = 30.0
"""A hundred times what it takes."""


def probe() -> Facilities:
    """Try every facility, in a fresh process: this one may have threads, and forking it would not be safe.

    Raises UnavailableError when not even that process can be run.
    """
    process = FreshPython(running(), __name__, "print_facilities", capture=True)
    output = process.output(_PROBE_SECONDS)
    if not output or process.status != 0:
        raise UnavailableError(f"the probing process failed with status {process.status}")
    return Facilities(found=tuple(Facility(**fields) for fields in json.loads(output)))


def print_facilities() -> None:
    """The probing process: print a JSON list."""
    print(json.dumps([asdict(facility) for facility in _try_all()]))


def _try_all() -> tuple[Facility, ...]:
    essential = try_essentials(open_host_proc())
    return (
        *essential.found,
        *(attempt(name, what, remedy) for name, what, remedy in ALL),
    )
