"""How a platform on a cluster of its own ends, whatever hangs: in bounded time, and with nothing left of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cluster.long_cell import Running, check_whole
from tests.cluster.standing import StandingPlatform, living_in
from tests.processes import kill, runs
from tests.waiting import until

from cenote import PythonRuntime
from cenote_security.errors import CenoteError

pytestmark = pytest.mark.timeout(300)  # a platform of its own is started for each, and one is started in vain

BOUND = 45.0
"""Seconds for `cenote down`."""


class Doomed:
    """A platform with a leased runtime, reached through its gateway, and what must be gone when it has ended."""

    def __init__(self, folder: Path) -> None:
        self.platform = StandingPlatform(folder)
        self.platform.up("--relay")
        self.runtime = PythonRuntime(address=self.platform.address, token=self.platform.token)
        assert self.runtime.execute("before = 13").success
        self.session = self.platform.cluster["pid"]
        self.files = Path(str(self.platform.cluster["folder"]))
        self.others = [self.platform.watcher, self.platform.gateway, self.platform.keeper]

    @property
    def left(self) -> list[int]:
        return [*filter(runs, self.others), *living_in(self.session)]

    def end(self) -> None:
        """Whatever the test has shown."""
        for pid in self.left:
            with suppress(ProcessLookupError):
                kill(pid)
        with suppress(CenoteError):
            self.runtime.close()


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Doomed]:
    doomed = Doomed(tmp_path)
    yield doomed
    doomed.end()


@pytest.mark.slow
def test_a_gateway_that_is_killed_comes_back(doomed: Doomed) -> None:
    """A cell goes on whose client goes through it. Killed with whoever would start it, it does not: `down` ends the
    rest in their place, and says so. What is left is nothing for a platform with other lines."""
    running = Running(doomed.runtime)
    kill(doomed.platform.gateway)
    check_whole(running)
    doomed.others.append(doomed.platform.gateway)
    kill(doomed.platform.watcher, doomed.platform.gateway)
    other = doomed.platform.begin("up", "--port", "0", "--tls")
    assert "without --tls, with --relay" in other.communicate(timeout=90)[1]
    done = doomed.platform.command("down")
    assert "killed" in done.stderr
    assert [] == doomed.left
    assert not doomed.files.exists()


@pytest.mark.slow
def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Killed before they were ready, its processes cannot end their cluster: whoever started them does."""
    platform = StandingPlatform(tmp_path)
    starting = platform.begin("up", "--port", "0")
    until((platform.state / "cluster.json").exists)
    kill(platform.watcher, platform.gateway)
    assert "not ready in time" in starting.communicate(timeout=90)[1]
    until(lambda: not platform.marked())
    assert not (platform.state / "cluster.json").exists()


@pytest.mark.long
def test_down_ends_a_gateway_that_is_stuck(doomed: Doomed) -> None:
    """After its patience, and says so."""
    os.kill(doomed.platform.gateway, signal.SIGSTOP)
    assert "did not end in time" in doomed.platform.command("down").stderr
    assert [] == doomed.left
    assert not doomed.files.exists()


@pytest.mark.long
def test_down_ends_a_platform_whose_agent_is_stuck(doomed: Doomed) -> None:
    """Though a creation and the look after leases wait for its answers."""
    (agent,) = doomed.platform.processes("ray::NodeAgent")
    os.kill(agent, signal.SIGSTOP)
    threading.Thread(target=create, args=(doomed.platform,), daemon=True).start()
    until(lambda: 1 == len(doomed.platform.unmade()))
    began = time.monotonic()
    done = doomed.platform.command("down")
    assert time.monotonic() - began < BOUND
    assert [] == doomed.left
    assert not doomed.files.exists()
    assert "" == done.stderr


def create(platform: StandingPlatform) -> None:
    with suppress(CenoteError), PythonRuntime(address=platform.address, token=platform.token) as runtime:
        runtime.execute("1")
