"""What a warden knows of the worker that it watches, and what it says to its client."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.in_jail.snapshots.line import Message
from cenote_worker.zygote import usage
from cenote_worker.zygote.programs import Programs
from cenote_worker.zygote.pulse import Pulse
from cenote_worker.zygote.shelf import Kept, Shelf
from cenote_worker.zygote.worker_number import WorkerNumber

NOBODY: Final = 0
"""In the place of the worker's pid."""

AT_ONCE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
"""How a warden sends: it never waits."""


@dataclass(kw_only=True)
class Parking:
    """Numbers of the messages that want it, 0 for none. leaving: that the worker ends. coming: that one is there.

    tries: how many came for that, and died before they had said that they work.
    """

    leaving: int = 0
    coming: int = 0
    tries: int = 0

    @property
    def expects_end(self) -> bool:
        """Whether that of the worker changes nothing: it was wanted, or another one is forked."""
        return bool(self.leaving or self.coming)


@dataclass(kw_only=True)
class Watch:
    """State of a warden. worker: pid of the one that lives, or NOBODY.

    oom_kills: the machine's count when the jail started. killed: whether it was told to kill the worker. wanted: the
    state that is to go on after that, if not the newest, and the number of the message that wants it. told: the
    worker, of the versions of files that copies have. alive: False until a worker that has come of a copy has said
    that it works. tries: how many came one after the other of that copy and died before they had answered anything.
    number: that each worker has. programs: that run beside it. cpu: microseconds of processor time that workers have
    taken which have ended.
    """

    worker: int
    control: socket.socket
    line: socket.socket
    shelf: Shelf
    oom_kills: int
    pulse: Pulse
    number: WorkerNumber
    programs: Programs
    cpu: int = 0
    killed: bool = False
    alive: bool = True
    tries: int = 0
    wanted: tuple[int, Kept] | None = None
    told: dict[str, object] = field(default_factory=dict)
    parking: Parking = field(default_factory=Parking)


def wake(state: Watch, kept: Kept, *, is_parked: bool = False) -> int | None:
    """See Kept.wake. No worker is there."""
    with state.number.next():
        return kept.wake(state.cpu, is_parked=is_parked)


def revive(state: Watch, kept: Kept, pid: int) -> None:
    """This process, come of what was kept, is the worker now."""
    state.worker, state.killed, state.alive, state.told = pid, False, False, {}
    state.tries += 1
    state.oom_kills = usage.oom_kills()
    state.pulse.copied(pid)
    if pid == kept.copy.pid:
        state.shelf.forget(pid)


def say(state: Watch, message: Message) -> None:
    """The client is trusted but may be gone, or slow: a warden never waits for it."""
    with suppress(OSError):
        state.control.send(json.dumps(message).encode(), AT_ONCE)
