"""How a platform with its own cluster ends, whatever hangs: in bounded time, and with nothing left of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster.long_cell import Running, check_whole
from tests.support.cluster.standing import StandingPlatform, living_in
from tests.support.processes import kill, runs
from tests.waiting import until

from cenote import PythonRuntime
from cenote_security.errors import CenoteError

pytestmark = pytest.mark.timeout(300)  # each test starts its own platform, and one start fails

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
        self.others = [self.platform.watcher, self.platform.gateway, self.platform.descriptor_store]

    @property
    def left(self) -> list[int]:
        return [*filter(runs, self.others), *living_in(self.session)]

    def end(self) -> None:
        """Cleans up, whether the test failed or not."""
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
    """A cell of a relayed client continues. If the watcher is killed too, the gateway does not come back: `down` ends
    the rest instead, and says so. A platform with other TLS settings cannot take over what is left.
    """
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
    """Processes that are killed before they are ready cannot end their cluster; the starting command ends it."""
    platform = StandingPlatform(tmp_path)
    starting = platform.begin("up", "--port", "0")
    until((platform.state / "cluster.json").exists)
    kill(platform.watcher, platform.gateway)
    assert "ended before it was ready" in starting.communicate(timeout=90)[1]
    until(lambda: not platform.marked())
    assert not (platform.state / "cluster.json").exists()


@pytest.mark.long
def test_down_ends_a_gateway_that_is_stuck(doomed: Doomed) -> None:
    """After its timeout, and the command says so."""
    os.kill(doomed.platform.gateway, signal.SIGSTOP)
    assert "did not end in time" in doomed.platform.command("down").stderr
    assert [] == doomed.left
    assert not doomed.files.exists()


@pytest.mark.long
def test_down_ends_a_platform_whose_agent_is_stuck(doomed: Doomed) -> None:
    """A creation and the lease sweep wait for its answers meanwhile."""
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
