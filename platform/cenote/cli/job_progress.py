"""How far a job is, while a command waits for it: one line that changes on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from cenote.terminal.screen import Screen, counted

if TYPE_CHECKING:
    from cenote.jobs import Job, JobStatus

LOOK_EVERY: Final = 1.0
SAY_EVERY: Final = 10.0
"""Seconds between two lines in a pipe at least, and only where something has changed."""


def watch(job: Job, screen: Screen, timeout: float | None = None) -> JobStatus:
    """Waits until it is over, for as long as that may take."""
    ends = None if timeout is None else time.monotonic() + timeout
    said, at = "", time.monotonic()
    while True:
        left = LOOK_EVERY if ends is None else min(LOOK_EVERY, ends - time.monotonic())
        status = job.wait(timeout=max(left, 0.0))
        line = _line(status)
        screen.progress(line)
        if status.is_over or (ends is not None and time.monotonic() >= ends):
            return status
        if not sys.stderr.isatty() and line != said and time.monotonic() - at >= SAY_EVERY:
            screen.note(line)
            said, at = line, time.monotonic()


def _line(status: JobStatus) -> str:
    failed = f", {status.failed} failed" if status.failed else ""
    waits = f"; waits for {status.waiting_for}" if status.waiting_for else ""
    tasks = counted(status.tasks, "task")
    return f"{status.name}: {status.over} of {tasks} over{failed}, {status.running} running{waits}"
