"""Who a jail's processes are: an unprivileged user outside, `cave` inside, with no capability anywhere.

Jails started by root run as host users of their own: one for each jail, and no other zygote's. The kernel counts
much per user: descriptors under way, pipe pages, inotify instances, pending signals, keys. Two jails of one user
could starve each other of it. Ids need no entry in any table, so there are enough for all.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, Self

from cenote_security.walls.kernel import libc_unsafe as libc

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


FIRST: Final = 0x7600_0000
"""Above every range that distributions hand out, and below what no tool takes for a user id any more."""

PER_ZYGOTE: Final = 2**15
"""Ids of one zygote: the first is its own, the others its jails'. Several times what one client may have at once."""

BLOCKS: Final = 2**12
"""Number of zygotes of a machine that can have ids of their own."""

SHARED: Final = 65_533
"""The one id for all, the last below `nobody`, in a container whose user namespace maps 16 bits only."""

LOCK_FILE: Final = "/run/cenote-user-ids"
"""A lock on its n-th byte says that a zygote has the n-th block. Only root can write there, so other users
cannot take all of them."""

_TRIES: Final = 64


class UserIds:
    """The ids of one zygote, for as long as its process lives."""

    def __init__(self, first: int, *, shared: bool, lock_file: int = -1) -> None:
        """first: the zygote's own. shared: whether it is the one id for all, since there are no others."""
        self._first = first
        self.shared = shared
        self._lock_file = lock_file

    @classmethod
    def take(cls, proc: int) -> Self:
        """A block that no other zygote has. Raises OSError when this user namespace has no id to give up root to.

        proc: a descriptor of the host's `/proc`.
        """
        if _exist(proc, FIRST, FIRST + BLOCKS * PER_ZYGOTE - 1):
            block, lock_file = take_block(random.SystemRandom().sample(range(BLOCKS), _TRIES))
            return cls(FIRST + block * PER_ZYGOTE, shared=False, lock_file=lock_file)
        if _exist(proc, SHARED, SHARED):
            return cls(SHARED, shared=True)
        raise OSError(
            f"none of the user ids from {FIRST} on, nor {SHARED}, exists in this user namespace, so that root cannot "
            "be given up: be another user than root in it, or map more ids into it (rootless containers: /etc/subuid)"
        )

    @property
    def own(self) -> int:
        """The zygote's."""
        return self._first

    def of(self, seat: int) -> int:
        """A jail's. seat: from 1 to `PER_ZYGOTE - 1`, no living jail's of this zygote."""
        return self._first if self.shared else self._first + seat


def _exist(proc: int, first: int, last: int) -> bool:
    with open(os.open("self/uid_map", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as lines:
        ranges = [tuple(map(int, line.split())) for line in lines]
    return any(start <= first and last < start + count for start, _, count in ranges)


def take_block(blocks: Sequence[int]) -> tuple[int, int]:
    """The first of these blocks that no process has, and a descriptor of the file with its lock.

    The caller gives them in random order: a container has a /run of its own, and where there is none to write
    to, chance alone keeps two zygotes apart; -1 stands for the file then.
    """
    try:
        file = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return blocks[0], -1
    for block in blocks:
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
            return block, file
    os.close(file)
    raise OSError(
        f"{len(blocks)} blocks of user ids, taken by chance, are all in use: see the locks on {LOCK_FILE}"
    )
