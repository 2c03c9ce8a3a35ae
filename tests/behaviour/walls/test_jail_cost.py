"""The cost of a jail: memory is bounded here, time is reported."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import Jail

BUDGET = 5 * 2**20
"""Bytes for warden and worker of an additional idle jail, before the namespace itself."""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a warden lets nobody but root look into it")
def test_memory_of_an_additional_jail(
    start_jail: StartJail, record_property: Callable[[str, object], None]
) -> None:
    """Between ten and forty jails, each further one costs less than the budget, with numpy and pandas loaded."""
    seconds: list[float] = []

    def more(count: int) -> list[Jail]:
        return [_timed(start_jail, seconds) for _ in range(count)]

    jails = more(10)
    few = _proportional_memory(jails)
    jails += more(30)
    assert BUDGET > (_proportional_memory(jails) - few) / 30
    record_property("start_ms_median", round(1000 * statistics.median(seconds), 1))


def _timed(start_jail: StartJail, seconds: list[float]) -> Jail:
    started = time.perf_counter()
    jail = start_jail("strict")
    jail.ask("result = 1")
    seconds.append(time.perf_counter() - started)
    return jail


def _proportional_memory(jails: list[Jail]) -> int:
    return sum(_pss(pid) for jail in jails for pid in (jail.warden, jail.worker))


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("smaps_rollup without Pss")
