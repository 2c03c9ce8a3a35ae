"""The meaning of each descriptor, and how a fresh process gets exactly those and no other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc

FRAMES: Final = 3
"""In a worker: the frames socket. 0 is /dev/null, 1 and 2 are the output pipes."""

WARDEN: Final = 4
"""In a worker: the socket to its warden, where copies of the worker are kept."""

PULSE: Final = 5
"""In both: a timer that runs while a cell does."""

CONTROL: Final = 3
"""In a warden: the control socket. 0, 1 and 2 are /dev/null."""

LINE: Final = 4
"""In a warden: the other end of a worker's socket."""

FOR_WORKERS: Final = (6, 7, 8, 9)
"""In a warden that may fork another worker: the new worker's descriptors 1 to WARDEN."""

WORKER_RULES: Final = 10
"""In such a warden: the rules that its level needs to confine a worker, if any."""

LAST_PID: Final = 11
"""In such a warden, after those rules: see Level."""

_ABOVE_ALL_FIXED: Final = 16


@dataclass(frozen=True, kw_only=True)
class JailDescriptors:
    """The descriptors of one jail, made by the client, in the order in which they travel.

    frames: SOCK_SEQPACKET, to the worker. control: SOCK_SEQPACKET, to the warden. stdout, stderr: write ends.
    environment: a memory file with the policy's variables, see `JailRequest`; added on the way when there are any.
    groups: files of the jail's control groups: a process that writes `0` there joins.
    """

    frames: int
    control: int
    stdout: int
    stderr: int
    environment: int | None = None
    groups: tuple[int, ...] = ()

    def without_groups(self) -> JailDescriptors:
        return replace(self, groups=())

    def in_order(self) -> tuple[int, ...]:
        always = (self.frames, self.control, self.stdout, self.stderr)
        environment = () if self.environment is None else (self.environment,)
        return (*always, *self.groups, *environment)

    @classmethod
    def arrived(cls, numbers: Sequence[int], groups: int) -> JailDescriptors:
        """The inverse of `in_order`, at the receiving end."""
        frames, control, stdout, stderr = numbers[:4]
        return cls(
            frames=frames,
            control=control,
            stdout=stdout,
            stderr=stderr,
            groups=tuple(numbers[4 : 4 + groups]),
            environment=numbers[4 + groups] if len(numbers) > 4 + groups else None,
        )


def place(wanted: Sequence[int]) -> None:
    """Make `wanted[n]` this process's descriptor n and close every other one.

    The same descriptor may be wanted twice, and any of them may already have a number that another one gets.
    """
    lifted = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_FIXED) for descriptor in wanted]
    for number, descriptor in enumerate(lifted):
        os.dup2(descriptor, number, inheritable=number < FRAMES)
    libc.close_from(len(lifted))


def lift(descriptor: int) -> int:
    """Move a descriptor above all fixed numbers, so that `place` cannot hit it by accident."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_FIXED)
    os.close(descriptor)
    return moved
