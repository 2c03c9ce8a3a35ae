"""Moves a jail into its own kernel: sends a boot message and executes the program that is that kernel.

Nothing is inherited by a fork there except the standard streams: everything else that the jail needs, including its
descriptors, is in the boot message, a packet on the socket that is its standard input.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from cenote_security.policy import SandboxPolicy
from cenote_security.walls.level import JailAllowance, Level
from cenote_worker.process.worker_settings import WorkerSettings
from cenote_worker.zygote.descriptors import JailDescriptors, place

GUEST: Final = "cenote_worker.zygote.gvisor_init"


@dataclass(frozen=True, kw_only=True)
class BootMessage:
    """The settings of the processes inside. entry: the module whose `main` is a worker."""

    allowance: JailAllowance
    settings: WorkerSettings
    entry: str

    def to_json(self) -> str:
        allowance = {**vars(self.allowance), "policy": self.allowance.policy.changes()}
        settings = {each.name: getattr(self.settings, each.name) for each in fields(self.settings)}
        del settings["policy"]  # the same
        return json.dumps({"allowance": allowance, "settings": settings, "entry": self.entry})

    @classmethod
    def from_json(cls, text: str | bytes) -> BootMessage:
        told = json.loads(text)
        policy = SandboxPolicy.from_changes(told["allowance"].pop("policy"))
        return cls(
            allowance=JailAllowance(**told["allowance"], policy=policy),
            settings=WorkerSettings(**told["settings"], policy=policy),
            entry=told["entry"],
        )


def exec_gvisor(
    level: Level, letter: BootMessage, environment: Mapping[str, str], descriptors: JailDescriptors, pipe: int
) -> None:
    """Becomes the program that runs the jail. Never returns; raises WallError, OSError.

    environment: all of the jail's variables except the policy's own. pipe: receives the report that the jail is
    ready, or that program's error text.
    """
    level.settle(letter.allowance)
    command = level.command(letter.allowance, GUEST, environment)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The groups were entered already, by the process that this one was forked from.
    enclosed = (pipe, *descriptors.without_groups().in_order())
    socket.send_fds(here, [letter.to_json().encode()], enclosed)
    place([there.fileno(), os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC), pipe])
    os.execve(command[0], command, {})
