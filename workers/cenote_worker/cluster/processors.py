"""What the processors of this machine have to do."""

from __future__ import annotations

import os
from pathlib import Path


def processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def idle_seconds() -> float:
    """For how long they had nothing to do since the machine's start, all of them together."""
    return float(Path("/proc/uptime").read_text().split()[1])
