"""Who a jail's processes are: an unprivileged user outside, `cave` inside, with no capability anywhere."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from cenote_security.walls import libc_unsafe as libc

INSIDE_ID: Final = 1000
"""uid and gid that processes of a jail see as their own."""

# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock, and KEEP_CAPS locked off.
_SECUREBITS: Final = 0b1110_1111

_TO_CHANGE_USER: Final = (libc.CAP_SETGID, libc.CAP_SETUID)


def become(identity: int) -> None:
    """Give up root, or what `become_maker_of_jails` left of it, for good: groups, gid, uid, capabilities."""
    _change_user(identity)
    libc.set_capabilities()


def become_maker_of_jails(identity: int) -> None:
    """Give up root, but for what it takes to give each jail a user of its own, and to end it.

    The right to change users is kept at hand, not in force: code that is preloaded does not use it by accident.
    """
    libc.prctl(libc.PR_SET_KEEPCAPS, 1)
    _change_user(identity)
    libc.set_capabilities(permitted=(*_TO_CHANGE_USER, libc.CAP_KILL), effective=(libc.CAP_KILL,))


def become_jail(identity: int) -> None:
    """What a fork of a maker of jails does; it has no capability any more then."""
    libc.set_capabilities(permitted=_TO_CHANGE_USER, effective=_TO_CHANGE_USER)
    become(identity)


def _change_user(identity: int) -> None:
    os.setgroups([])
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)


def map_into_new_namespace(
    proc: int, uid: int, gid: int, *, inside: int = INSIDE_ID, inside_gid: int = INSIDE_ID
) -> None:
    """Map the one user and group of this process into the user namespace that it has just made.

    proc: a descriptor of the host's `/proc`. uid, gid: the ids in the parent namespace.
    """
    write_proc(proc, "setgroups", "deny")
    write_proc(proc, "uid_map", f"{inside} {uid} 1")
    write_proc(proc, "gid_map", f"{inside_gid} {gid} 1")


def write_proc(proc: int, name: str, text: str) -> None:
    """Write one of the calling process's files below a descriptor of `/proc`."""
    try:
        descriptor = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError as error:
        error.filename = f"open /proc/self/{name}"
        raise
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = f"write {text!r} to /proc/self/{name}"
        raise
    finally:
        os.close(descriptor)


def last_capability(proc: int) -> int:
    """The highest capability that the kernel knows. proc: a descriptor of `/proc`."""
    with open(os.open("sys/kernel/cap_last_cap", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as number:
        return int(number.read())


def renounce_capabilities(last: int, kept: Collection[int] = ()) -> None:
    """No capability now but these, and none to be had from any program: bounding set and securebits first, they need
    one.
    """
    drop_bounding_set(last)
    libc.prctl(libc.PR_CAP_AMBIENT, libc.PR_CAP_AMBIENT_CLEAR_ALL)
    libc.prctl(libc.PR_SET_SECUREBITS, _SECUREBITS)
    libc.set_capabilities(permitted=kept, effective=kept)
    forbid_new_privileges()


def drop_bounding_set(last: int) -> None:
    """No program that is started from now on can give a capability. Needs CAP_SETPCAP."""
    for capability in range(last + 1):
        libc.prctl(libc.PR_CAPBSET_DROP, capability)


def forbid_new_privileges() -> None:
    """No program that this process starts can gain rights by set-uid bits or file capabilities."""
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
