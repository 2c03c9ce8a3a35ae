"""Trials that decide which levels a machine can give. Fast, since every zygote begins with them.

Each is made in a throwaway child, so that whatever it does to its process is gone afterwards.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from typing import Final

from cenote_security.walls import namespaces, restrictions
from cenote_security.walls.facilities import Facilities, Facility
from cenote_security.walls.identity import UserIds, forbid_new_privileges
from cenote_security.walls.kernel import landlock
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import WallError

Attempt = Callable[[], str]
"""Tries the facility and says in a few words what was found. Raises OSError or WallError when it is missing."""


def attempt(name: str, what: Attempt, remedy: str = "") -> Facility:
    """Try `what` in a child. The process must be single-threaded."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _report(what, write_end)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    if not report:
        report = json.dumps([False, f"the attempt ended with {os.waitstatus_to_exitcode(status)}"]).encode()
    available, detail = json.loads(report)
    return Facility(name=name, available=available, detail=detail, remedy="" if available else remedy)


def _report(what: Attempt, pipe: int) -> None:
    """Never returns: the child ends here whatever happens."""
    try:
        try:
            answer = [True, what()]
        except (OSError, WallError) as error:
            answer = [False, str(error)]
        os.write(pipe, json.dumps(answer).encode())
    finally:
        os._exit(0)


_SCOPES_ABI: Final = 6

NAMESPACES_REMEDY: Final = (
    "User namespaces are forbidden to this process. Ubuntu 23.10 or later: `sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for this Python with `userns,`. Debian: "
    "`sysctl kernel.unprivileged_userns_clone=1`. Any: `user.max_user_namespaces` above 0. Docker: a seccomp profile "
    "that allows unshare and mount (`--security-opt seccomp=...`) and `--security-opt systempaths=unconfined`. "
    "Kubernetes: `securityContext.procMount: Unmasked` and seccompProfile `Unconfined` or `Localhost`. "
    'Otherwise ask for isolation="landlock".'
)
LANDLOCK_REMEDY: Final = "Needs Linux 5.13 or later with `landlock` in the `lsm=` boot parameter."
SCOPES_REMEDY: Final = "Without namespaces a jail needs Landlock's signal scope: Linux 6.12 or later."
SECCOMP_REMEDY: Final = "Needs a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64."


def try_essentials(host_proc: int) -> Facilities:
    """Try what the levels rest on. host_proc: a descriptor of the host's `/proc`."""
    tried = (
        attempt("namespaces", lambda: _enter_namespaces(host_proc), NAMESPACES_REMEDY),
        attempt("seccomp", _be_filtered, SECCOMP_REMEDY),
    )
    return Facilities(found=(*tried, *_landlock()))


def _enter_namespaces(host_proc: int) -> str:
    """Enters namespaces as a zygote and then a jail do."""
    users = UserIds.take(host_proc) if os.geteuid() == 0 else None
    namespaces.enter_for_zygote(host_proc)
    namespaces.leave_power_behind(users)
    namespaces.enter_for_jail(host_proc, users, seat=1)
    _mount_proc()
    return "user, mount, pid, net, ipc, uts, cgroup"


def _mount_proc() -> None:
    """In the new pid namespace, which begins with the next fork.

    The kernel gives no whole `/proc` to those who have been shown one with parts covered up, as in most containers.
    """
    child = os.fork()
    if child == 0:
        try:
            libc.mount(
                "proc", "/proc", "proc", libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
            )
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, f"a /proc of their own cannot be mounted: {os.strerror(code)}")


def _be_filtered() -> str:
    """Install the real filter and see it refuse a call that is allowed to every process without one."""
    forbid_new_privileges()
    libc.install_filter(restrictions.call_filter("strict"))
    try:
        libc.unshare(0)
    except PermissionError:
        return "filter mode"
    raise OSError(errno.ENOTSUP, "a filter was taken, but filters nothing")


def _landlock() -> tuple[Facility, Facility]:
    """Two questions to the kernel that change nothing: no child needed."""
    try:
        abi = landlock.abi()
    except OSError as error:
        missing = Facility(name="landlock", available=False, detail=str(error), remedy=LANDLOCK_REMEDY)
        return missing, Facility(
            name="landlock scopes", available=False, detail=str(error), remedy=SCOPES_REMEDY
        )
    scoped = abi >= _SCOPES_ABI
    return (
        Facility(name="landlock", available=True, detail=f"ABI {abi}, errata mask {landlock.errata():#x}"),
        Facility(
            name="landlock scopes",
            available=scoped,
            detail="signals, abstract sockets" if scoped else f"ABI {abi} has none",
            remedy="" if scoped else SCOPES_REMEDY,
        ),
    )
