"""The first process of a jail that has its own kernel: reads the boot message and becomes the warden."""

from __future__ import annotations

import importlib
import socket

from cenote_security.walls.levels.gvisor_guest_level import GvisorGuestLevel
from cenote_worker.zygote import preload
from cenote_worker.zygote.descriptors import JailDescriptors
from cenote_worker.zygote.gvisor_exec_unsafe import BootMessage
from cenote_worker.zygote.spawn import JailProcesses, be_warden
from cenote_worker.zygote.spec import MAX_MESSAGE
from cenote_worker.zygote.warden import loop

_LETTER_BOX = 0
_MAX_DESCRIPTORS = 8
"""A pipe, the descriptors of every jail, and an environment."""


def run() -> None:
    """The whole life of the process. Its standard input is the socket with the boot message."""
    with socket.socket(fileno=_LETTER_BOX) as box:
        message, descriptors, _, _ = socket.recv_fds(box, MAX_MESSAGE, _MAX_DESCRIPTORS)
    letter = BootMessage.from_json(message)
    pipe, *numbers = descriptors
    entry = importlib.import_module(letter.entry).main
    preload.settle_memory()
    loop.heed_signals()
    inmates = JailProcesses(
        level=GvisorGuestLevel(),
        entry=entry,
        allowance=letter.allowance,
        settings=letter.settings,
        environment={},
        descriptors=JailDescriptors.arrived(numbers, groups=0),
        oom_kills=0,
    )
    be_warden(inmates, pipe)
