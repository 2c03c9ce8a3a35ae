"""Landlock: the fence that holds even where there is no namespace. What a jail may touch, by path.

A domain is never loosened, only nested: the worker's lies below its warden's, so the worker can neither trace
nor signal the warden, whatever else it gets hold of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
# 6: make a character device, which no grant ever gives
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_FIFO: Final = 1 << 10
# 11: make a block device, likewise
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15

BIND_TCP: Final = 1 << 0
CONNECT_TCP: Final = 1 << 1

SCOPE_ABSTRACT_UNIX_SOCKET: Final = 1 << 0
SCOPE_SIGNAL: Final = 1 << 1

READ: Final = EXECUTE | READ_FILE | READ_DIR
DEVICE: Final = READ_FILE | WRITE_FILE
WRITE: Final = (
    READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
    | REFER | TRUNCATE
)  # fmt: skip

# What an access on a file (not a directory) may hold; the kernel refuses the rest.
_FILE_ACCESS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


@dataclass(frozen=True, kw_only=True)
class Handled:
    """The accesses that a ruleset takes away unless a rule gives them back."""

    filesystem: int
    network: int
    scoped: int


def handled(abi: int) -> Handled:
    """All that a kernel of this ABI can take away. Later ABIs than 7 add nothing that a jail's walls rely on."""
    filesystem = (1 << 13) - 1
    if abi >= 2:
        filesystem |= REFER
    if abi >= 3:
        filesystem |= TRUNCATE
    if abi >= 5:
        filesystem |= IOCTL_DEV
    network = BIND_TCP | CONNECT_TCP if abi >= 4 else 0
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if abi >= 6 else 0
    return Handled(filesystem=filesystem, network=network, scoped=scoped)


def abi() -> int:
    """The kernel's Landlock ABI. Raises OSError: ENOSYS when not built in, EOPNOTSUPP when disabled at boot."""
    return libc.landlock_query(libc.LANDLOCK_CREATE_RULESET_VERSION)


def errata() -> int:
    """Mask of the fixed errata; 0 on kernels before the query existed."""
    try:
        return libc.landlock_query(libc.LANDLOCK_CREATE_RULESET_ERRATA)
    except OSError:
        return 0


@dataclass(frozen=True, kw_only=True)
class Grant:
    """An access given back for a path and all below it."""

    path: str
    access: int


def ruleset(grants: Iterable[Grant], ports: Iterable[int] = ()) -> int:
    """A ruleset descriptor that takes everything away but the grants, and connecting to some TCP ports.

    A path that does not exist is skipped.
    """
    all_handled = handled(abi())
    descriptor = libc.landlock_create_ruleset(all_handled.filesystem, all_handled.network, all_handled.scoped)
    for grant in grants:
        _allow(descriptor, grant, all_handled.filesystem)
    if all_handled.network & CONNECT_TCP:
        for port in ports:
            libc.landlock_allow_port(descriptor, port, CONNECT_TCP)
    return descriptor


def _allow(descriptor: int, grant: Grant, known: int) -> None:
    try:
        path = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        on_directory = stat.S_ISDIR(os.fstat(path).st_mode)
        access = grant.access & known & (~0 if on_directory else _FILE_ACCESS)
        libc.landlock_allow_beneath(descriptor, path, access)
    finally:
        os.close(path)
