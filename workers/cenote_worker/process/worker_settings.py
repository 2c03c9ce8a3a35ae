"""What a worker is told about the jail that it wakes up in."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_security.policy import SandboxPolicy
from cenote_security.walls.level import LevelName


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Facts, not requests: the walls and limits stand already when a worker reads this.

    workdir: absolute path; it is the current directory and `HOME`. temporary: absolute path of `TMPDIR`.
    isolation: the level in force. policy: see Allowance. warden: descriptor of the line to the warden, which keeps
    copies of the worker; -1 when none are kept. pulse: that of a timer to be started with each cell, likewise.
    wanted: what the warden says to a worker that begins where the first one began, as JSON; empty in that one.
    borrower: descriptor of a line to whom such a worker lends that state, to live no longer; -1 for none.
    """

    workdir: str
    temporary: str
    isolation: LevelName
    policy: SandboxPolicy
    warden: int = -1
    pulse: int = -1
    wanted: str = ""
    borrower: int = -1
