"""A jail that has been started, as descriptors and data: whoever holds them can supervise it, in any process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cenote_security.certificates import Certificate
from cenote_security.walls.cgroups_jail import JailGroup, Share
from cenote_security.walls.level import LevelName


@dataclass(frozen=True, slots=True, kw_only=True)
class JailEnds:
    """The outer ends of a jail's channels, its first process, and what its limits are held by.

    group: its control group; None for a watchdog. disk: its private folders, -1 for none that are its own. egress: a
    listening socket, on which its connections arrive; -1 without a network. base: bytes it began with. authority:
    whom its programs trust beside others, where its policy has credentials. cold: its zygote was started for it.
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

    def record(self) -> bytes:
        """What `arrived` needs besides the descriptors: for places that are as private as this process."""
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
        }
        return json.dumps(facts).encode()

    def descriptors(self) -> list[int]:
        """In the order in which `arrived` takes them."""
        always = [self.pidfd, self.frames.fileno(), self.control.fileno(), self.stdout, self.stderr]
        return always + [descriptor for descriptor in (self.disk, self.egress) if descriptor >= 0]

    @classmethod
    def arrived(cls, record: bytes, descriptors: Sequence[int]) -> JailEnds:
        """The ends of a jail that another process has started. Takes them over."""
        facts = json.loads(record)
        pidfd, frames, control, stdout, stderr, *further = descriptors
        group = None
        if facts["group"] is not None:
            folders = {controller: Path(path) for controller, path in facts["group"]["folders"].items()}
            share = Share(**facts["group"]["share"])
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
        )

    def close(self) -> None:
        """Lets go of the jail without ending it. It ends when nobody holds its ends any more."""
        if self.group is not None:
            self.group.close()
        self.frames.close()
        self.control.close()
        for descriptor in (self.pidfd, self.stdout, self.stderr, self.disk, self.egress):
            if descriptor >= 0:
                os.close(descriptor)
