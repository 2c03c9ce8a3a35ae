"""How busy the machine is, according to its kernel."""

from __future__ import annotations

import os
import time

from tests.waiting import until

from cenote_worker.node.machine import idle_seconds

TICK = 0.01
"""Seconds: the kernel's resolution."""


def test_idle_time_passes_for_each_processor_that_has_nothing_to_do() -> None:
    """Never faster than for all of them, and never backwards."""
    began, first = time.monotonic(), idle_seconds()
    until(lambda: time.monotonic() >= began + 10 * TICK)
    passed, idle = idle_seconds() - first, time.monotonic() - began
    assert -TICK <= passed <= (os.cpu_count() or 1) * (idle + 2 * TICK)
