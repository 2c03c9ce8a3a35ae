"""Moving a jail into a kernel of its own: a letter with all that it needs, and the program that is that kernel.

Nothing is shared by a fork there, and only the standard streams go along: what else the jail needs, its descriptors
among it, lies in the letter, a packet on the socket that is its standard input.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from cenote_security.walls.level import Allowance, Level
from cenote_worker.settings import WorkerSettings
from cenote_worker.zygote.descriptors import JailDescriptors, place

GUEST: Final = "cenote_worker.zygote.guest"


@dataclass(frozen=True, kw_only=True)
class Letter:
    """What the processes inside are told. entry: the module whose `main` is a worker."""

    allowance: Allowance
    settings: WorkerSettings
    entry: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Letter:
        fields = json.loads(text)
        return cls(
            allowance=Allowance(**fields["allowance"]),
            settings=WorkerSettings(**fields["settings"]),
            entry=fields["entry"],
        )


def board(
    level: Level, letter: Letter, environment: Mapping[str, str], descriptors: JailDescriptors, pipe: int
) -> None:
    """Become the program that runs the jail. Returns never; raises WallError, OSError.

    environment: all of the jail's variables but the policy's own. pipe: where it is said that the jail is ready, and
    that program's words if it fails.
    """
    level.settle(letter.allowance)
    command = level.command(letter.allowance, GUEST, environment)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The groups were entered already, by the process that this one was forked from.
    enclosed = (pipe, *descriptors.without_groups().in_order())
    socket.send_fds(here, [letter.to_json().encode()], enclosed)
    place([there.fileno(), os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC), pipe])
    os.execve(command[0], command, {})
