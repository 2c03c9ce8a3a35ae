"""The host's users that jails started by root run as: one for each jail, and no other zygote's.

The kernel counts much per user: descriptors under way, pipe pages, inotify instances, pending signals, keys. Two
jails of one user could starve each other of it. Ids need no entry in any table, so there are enough for all.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

FIRST: Final = 0x7600_0000
"""Above every range that distributions hand out, and below what no tool takes for a user id any more."""

PER_ZYGOTE: Final = 2**15
"""Ids of one zygote: the first is its own, the others its jails'. Several times what one client may have at once."""

BLOCKS: Final = 2**12
"""So many zygotes can be told apart on a machine."""

SHARED: Final = 65_533
"""The one id for all, the last below `nobody`, in a container whose user namespace maps 16 bits only."""

LOCK_FILE: Final = "/run/cenote-user-ids"
"""A lock on its n-th byte says that a zygote has the n-th block. Only root can write there, so nobody else can
take all of them."""

_TRIES: Final = 64


class UserIds:
    """The ids of one zygote, for as long as its process lives."""

    def __init__(self, first: int, *, shared: bool, lock_file: int = -1) -> None:
        """first: the zygote's own. shared: whether it is everybody's, there being no others."""
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

    The caller brings them in an order of chance: a container has a /run of its own, and where there is none to write
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
