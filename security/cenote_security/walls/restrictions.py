"""The last walls, put up by a jail's own processes just before they do anything else: Landlock and seccomp.

The warden enters a first Landlock domain and installs the filter; the worker, its child, inherits both and enters
a second domain below. So neither can undo its walls, and the worker cannot reach the warden.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import MFD_NOEXEC_SEAL
from cenote_security.walls import seccomp
from cenote_security.walls.kernel import landlock
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.kernel.landlock import Grant
from cenote_security.walls.kernel.syscalls import machine
from cenote_security.walls.level import building
from cenote_security.walls.root import DEVICES, WORKDIR

DEVICE_GRANTS: Final = tuple(Grant(path=f"/dev/{name}", access=landlock.DEVICE) for name in DEVICES)

STRICT_GRANTS: Final[Sequence[Grant]] = (
    Grant(path="/", access=landlock.READ),
    *(Grant(path=path, access=landlock.WRITE) for path in (WORKDIR, "/tmp", "/dev/shm")),
    *DEVICE_GRANTS,
)
"""On a private root everything visible may be read. What may be written is said here a second time."""


def without_execution(grant: Grant) -> Grant:
    """The same access, but where files can be written none can be executed."""
    if not grant.access & landlock.MAKE_REG:
        return grant
    return Grant(path=grant.path, access=grant.access & ~landlock.EXECUTE)


def ruleset(grants: Sequence[Grant], ports: Sequence[int] = ()) -> int:
    """A descriptor of Landlock rules, for as many nested domains as wanted. Raises WallError."""
    with building("make the Landlock rules"):
        return landlock.ruleset(grants, ports)


def confine_paths(rules: int) -> None:
    """Enter a Landlock domain below the present one; no_new_privs must be set. Raises WallError."""
    with building("confine with Landlock"):
        libc.landlock_restrict_self(rules)


def filter_calls(calls: libc.Filter) -> None:
    """Install a seccomp filter; no_new_privs must be set. Raises WallError."""
    with building("install the seccomp filter"):
        libc.install_filter(calls)


def call_filter(level: seccomp.FilterLevel, *, shares_user: bool = False) -> libc.Filter:
    """The filter of a level for this machine. A zygote makes it once for all its jails; see `as_wanted`."""
    return libc.Filter(seccomp.program(level, machine(), shares_user=shares_user))


def as_wanted(
    policy: SandboxPolicy,
    level: seccomp.FilterLevel,
    calls: libc.Filter,
    grants: Sequence[Grant],
    *,
    shares_user: bool = False,
) -> tuple[libc.Filter, tuple[Grant, ...]]:
    """A jail's filter and grants: its zygote's, or stricter ones where its policy wants those.

    Raises WallError for what this kernel cannot hold.
    """
    if not policy.noexec:
        return calls, tuple(grants)
    with building("keep memory files from being executed, which takes Linux 6.3,"):
        os.close(os.memfd_create("cenote", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL))
    strict = seccomp.program(level, machine(), shares_user=shares_user, runs_memory_files=False)
    return libc.Filter(strict), tuple(map(without_execution, grants))
