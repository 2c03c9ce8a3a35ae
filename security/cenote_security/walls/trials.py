"""The trials that decide which levels a machine can give. Fast, since every zygote begins with them."""

from __future__ import annotations

import errno
import os
from typing import Final

from cenote_security.walls import landlock, namespaces, seccomp
from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls.facilities import Facilities, Facility
from cenote_security.walls.identity import forbid_new_privileges
from cenote_security.walls.syscalls import machine

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


def essentials(host_proc: int) -> Facilities:
    """Try what the levels rest on. host_proc: a descriptor of the host's `/proc`."""
    return Facilities(found=(try_namespaces(host_proc), try_landlock(), try_scopes(), try_seccomp()))


def try_namespaces(host_proc: int) -> Facility:
    error = namespaces.try_for_jail(host_proc)
    return Facility(
        name="namespaces",
        available=error is None,
        detail="user, mount, pid, net, ipc, uts, cgroup" if error is None else str(error),
        remedy="" if error is None else NAMESPACES_REMEDY,
    )


def try_landlock() -> Facility:
    try:
        detail = f"ABI {landlock.abi()}, errata mask {landlock.errata():#x}"
    except OSError as error:
        return Facility(name="landlock", available=False, detail=str(error), remedy=LANDLOCK_REMEDY)
    return Facility(name="landlock", available=True, detail=detail)


def try_scopes() -> Facility:
    name = "landlock scopes"
    try:
        abi = landlock.abi()
    except OSError as error:
        return Facility(name=name, available=False, detail=str(error), remedy=SCOPES_REMEDY)
    if abi < _SCOPES_ABI:
        return Facility(name=name, available=False, detail=f"ABI {abi} has none", remedy=SCOPES_REMEDY)
    return Facility(name=name, available=True, detail="signals, abstract sockets")


def try_seccomp() -> Facility:
    """Install the real filter in a child and see it refuse a call."""
    child = os.fork()
    if child == 0:
        os._exit(_code_of_filtered_call())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == errno.EPERM:
        return Facility(name="seccomp", available=True, detail="filter mode")
    detail = os.strerror(code) if code > 0 else f"exit code {code}"
    return Facility(name="seccomp", available=False, detail=detail, remedy=SECCOMP_REMEDY)


def _code_of_filtered_call() -> int:
    """The errno of `unshare` under the filter; runs in a throwaway child."""
    try:
        forbid_new_privileges()
        libc.install_filter(seccomp.program("strict", machine()))
        libc.unshare(0)  # allowed to everybody without a filter
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0
