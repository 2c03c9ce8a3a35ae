"""A started jail as descriptors and data, and the means by which its supervisor kills it.

Any process that has the outer ends of a jail's channels can supervise it. Without a pid namespace the death of the
warden ends no other process, so the warden is asked to end its jail before it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cenote_security.auth.certificates import Certificate
from cenote_security.walls.cgroups import CgroupShare, JailGroup
from cenote_security.walls.level import LevelName
from cenote_worker.egress.proxy import OpenProxySession
from cenote_worker.supervisor.reactor import Reactor, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class JailEnds:
    """The outer ends of a jail's channels, its first process, and what its limits are enforced with.

    group: its control group; None for a watchdog. disk: its private folders, -1 if it has none of its own. egress: a
    listening socket, on which its connections arrive; -1 without a network. base: bytes it began with. authority: a
    certificate that its programs trust besides others, where its policy has credentials. cold: its zygote was started
    for it. image_key: of its zygote, empty if it can become no image; see `zygote/image_key.py`. common: the file
    that its zygote's memory is in; -1 if it is not known.
    """

    pidfd: int
    frames: socket.socket
    control: socket.socket
    stdout: int
    stderr: int
    isolation: LevelName
    base: int
    group: JailGroup | None = None
    disk: int = -1
    egress: int = -1
    authority: Certificate | None = None
    cold: bool = False
    image_key: str = ""
    common: int = -1

    def record(self) -> bytes:
        """What `arrived` needs besides the descriptors. Store it only in places as private as this process."""
        group = None
        if self.group is not None:
            folders = {controller: str(path) for controller, path in self.group.folders.items()}
            group = {"version": self.group.version, "folders": folders, "share": asdict(self.group.share)}
        facts = {
            "isolation": self.isolation,
            "base": self.base,
            "group": group,
            "disk": self.disk >= 0,
            "egress": self.egress >= 0,
            "authority": None if self.authority is None else self.authority.parts(),
            "cold": self.cold,
            "image_key": self.image_key,
            "common": self.common >= 0,
        }
        return json.dumps(facts).encode()

    def descriptors(self) -> list[int]:
        """In the order in which `arrived` takes them."""
        always = [self.pidfd, self.frames.fileno(), self.control.fileno(), self.stdout, self.stderr]
        further = (self.disk, self.egress, self.common)
        return always + [descriptor for descriptor in further if descriptor >= 0]

    @classmethod
    def arrived(cls, record: bytes, descriptors: Sequence[int]) -> JailEnds:
        """The ends of a jail that another process has started. Takes them over."""
        facts = json.loads(record)
        pidfd, frames, control, stdout, stderr, *further = descriptors
        group = None
        if facts["group"] is not None:
            folders = {controller: Path(path) for controller, path in facts["group"]["folders"].items()}
            share = CgroupShare(**facts["group"]["share"])
            group = JailGroup.there(facts["group"]["version"], folders, share)
        return cls(
            pidfd=pidfd,
            frames=socket.socket(fileno=frames),
            control=socket.socket(fileno=control),
            stdout=stdout,
            stderr=stderr,
            isolation=facts["isolation"],
            base=facts["base"],
            group=group,
            disk=further.pop(0) if facts["disk"] else -1,
            egress=further.pop(0) if facts["egress"] else -1,
            authority=Certificate.of_parts(facts["authority"]) if facts.get("authority") else None,
            cold=facts.get("cold", False),
            image_key=facts.get("image_key", ""),
            common=further.pop(0) if facts.get("common") else -1,
        )

    def close(self) -> None:
        """Closes the ends without ending the jail. It ends when no process has its ends open any more."""
        if self.group is not None:
            self.group.close()
        self.frames.close()
        self.control.close()
        for descriptor in (self.pidfd, self.stdout, self.stderr, self.disk, self.egress, self.common):
            if descriptor >= 0:
                os.close(descriptor)


_WITHOUT_PID_NAMESPACE: Final = ("landlock", "none")

_LEAVE_SECONDS: Final = 0.5
"""Seconds for a warden to end its jail, a hundred times what it takes; after that it is killed too."""


class JailHandle:
    """Of one jail. `kill` is called under the lock; `release` on the reactor's thread, once, as the last call."""

    def __init__(
        self,
        reactor: Reactor,
        lock: threading.RLock,
        ends: JailEnds,
        egress: OpenProxySession | None,
        released: Callable[[], None],
    ) -> None:
        """egress: its network access, if any. released: called when the jail was released."""
        self._reactor = reactor
        self._lock = lock
        self._ends = ends
        self._egress = egress
        self._released = released
        self._alarm: Timer | None = None
        self._open = True

    def call_at(self, when: float | None, callback: Callable[[], None]) -> None:
        """Calls `callback` when the jail's time is over, if it is limited, unless the jail was released before."""
        self._alarm = None if when is None else self._reactor.call_at(when, callback)

    def kill(self) -> None:
        """Without a pid namespace the warden's death ends no other process: it is asked to end its jail first."""
        if self._ends.isolation in _WITHOUT_PID_NAMESPACE:
            with suppress(OSError):
                self._ends.control.shutdown(socket.SHUT_WR)
            self._reactor.call_at(time.monotonic() + _LEAVE_SECONDS, self._kill_warden)
            return
        self._kill_warden()

    def make_sure(self) -> None:
        """Kills a jail that reports its end. At `gvisor` the report may come from a cell."""
        if self._ends.isolation not in _WITHOUT_PID_NAMESPACE:
            with suppress(OSError):
                signal.pidfd_send_signal(self._ends.pidfd, signal.SIGKILL)

    def set_common(self, file: int) -> None:
        """Has `common` be that file: the worker has become a process of another zygote, with its memory."""
        with self._lock:
            if self._open and self._ends.common >= 0:
                os.dup2(file, self._ends.common, inheritable=False)

    def release(self) -> None:
        """Closes the jail's ends. A jail that still runs continues if another process has its ends open."""
        with self._lock:
            self._open = False
        if self._alarm is not None:
            self._alarm.cancel()
        if self._egress is not None:
            self._egress.close()
        self._ends.close()
        self._released()

    def _kill_warden(self) -> None:
        with self._lock:
            if not self._open:
                return
            try:
                signal.pidfd_send_signal(self._ends.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except OSError:
                # Not ours to signal (another uid): closing the control channel makes the warden leave.
                self._ends.control.shutdown(socket.SHUT_RDWR)
