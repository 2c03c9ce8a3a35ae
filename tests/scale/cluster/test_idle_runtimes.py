"""Idle runtimes, many more than a machine has processors: each retains its state, for little memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.cluster.levels import in_jail
from tests.support.cluster.standing import StandingPlatform
from tests.waiting import until

import cenote
from cenote import SandboxPolicy

COUNT = int(os.environ.get("CENOTE_IDLE_RUNTIMES", "1000"))
AT_ONCE = 4
SAMPLE = 20

LEAN = SandboxPolicy(preload=(), snapshots="none")
"""Each snapshot would be a forked copy, and so one more process."""

SERVING = 0.8
JAIL = 10.0
"""MiB of an idle runtime that has run a cell: in the platform's processes, and in its jail's two.
About 0.3 and 8.4 were measured, besides further processes that serve runtimes.
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_idle_runtimes(platform: StandingPlatform) -> None:
    """They exist at once, with their values, and are gone when they are deleted."""
    # Processes that serve runtimes, zygotes, and what they cache.
    with many(platform, range(-AT_ONCE * 4, 0)):
        before = memory(platform)
        with many(platform, range(COUNT)):
            serving, jails = ((now - was) / COUNT for now, was in zip(memory(platform), before, strict=True))
            print(f"{COUNT} idle runtimes: {serving:.2f} MiB each in the platform, {jails:.2f} MiB in jails")
            here = cenote.connect(platform.address, platform.token)
            for number in range(0, COUNT, COUNT // SAMPLE):
                with here.runtime(f"idle{number}") as runtime:
                    assert str(number) == runtime.execute("number").value
            assert COUNT <= len(here.runtimes())
            assert serving <= SERVING
            assert jails <= JAIL
    until(lambda: not platform.kept("runtime/"))


@contextmanager
def many(platform: StandingPlatform, numbers: range) -> Iterator[None]:
    here = cenote.connect(platform.address, platform.token)

    def make(number: int) -> None:
        with here.runtime(f"idle{number}", sandbox=LEAN) as runtime:
            assert runtime.execute(f"number = {number}").success

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(make, numbers))
        yield
        list(pool.map(here.delete, [f"idle{number}" for number in numbers]))


def memory(platform: StandingPlatform) -> tuple[float, float]:
    """MiB of the platform's processes, each shared page divided among those that share it; and of its jails."""
    found = [0.0, 0.0]
    for pid in platform.marked():
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            size = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            found[in_jail(pid) is not None] += size / 1024
    return found[0], found[1]
