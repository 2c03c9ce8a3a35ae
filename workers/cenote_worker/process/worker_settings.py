"""A worker's settings: facts about its jail."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_security.policy import SandboxPolicy
from cenote_security.walls.level import LevelName


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Facts, not requests: the walls and limits stand already when a worker reads this.

    workdir: absolute path; it is the current directory and `HOME`. temporary: absolute path of `TMPDIR`.
    isolation: the level in force. policy: see JailAllowance. warden: descriptor of the socket to the warden, which
    keeps copies of the worker; -1 when none are kept. pulse: that of a timer to be started with each cell, likewise.
    wanted: the warden's message to a worker that begins where the first one began, as JSON; empty in the first one.
    borrower: descriptor of a socket to which such a worker lends its state before it ends; -1 for none.
    """

    workdir: str
    temporary: str
    isolation: LevelName
    policy: SandboxPolicy
    warden: int = -1
    pulse: int = -1
    wanted: str = ""
    borrower: int = -1
