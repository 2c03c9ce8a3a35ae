"""A platform on a cluster whose machines Ray's own autoscaler adds and removes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.support.cluster.foreign import FakeAutoscaler, RayMachine, named_head
from tests.support.cluster.standing import StandingPlatform
from tests.waiting import until

import cenote
from cenote import SandboxPolicy
from cenote.runtime.remote.address import AUTHORITY
from cenote_security.errors import CenoteError

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(500)]
"""Processes of two clusters' worth of machines start, and an autoscaler waits for idle ones."""

SMALL = SandboxPolicy(memory="256MiB", snapshots="none", tracking=False)


class Growing:
    """A platform on a head with one place, and an autoscaler that may add one machine with two."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.platform = StandingPlatform(folder)
        environment = self.platform.environment
        environment[AUTHORITY] = authority = str(self.platform.state / "tls" / "ca.pem")
        opened.enter_context(pytest.MonkeyPatch.context()).setenv(AUTHORITY, authority)
        id, named = named_head()
        self.head = RayMachine(environment | named, places=1)
        opened.callback(self.head.end)
        self.head.wait()
        self.autoscaler = FakeAutoscaler((id, self.head.address), environment, places=2, most=1, idle=2)
        opened.callback(self.autoscaler.end)
        self.platform.up(
            *("--tls", "--ray-address", self.head.address, "--no-http"),
            *("--store", str(folder / "store")),
            *("--wait-for-room", "300", "--release-idle", "3"),
        )
        opened.callback(self.platform.command, "down")

    @property
    def here(self) -> cenote.Platform:
        return cenote.connect(self.platform.address, self.platform.token)

    def nodes(self) -> list[str]:
        return [node.id for node in self.here.describe().nodes if not node.silent]

    @property
    def asks(self) -> bool:
        """Whether the autoscaler sees something that waits for a place, in its last look."""
        return "pending placement groups" in self.autoscaler.log.rpartition("Pending Demands:")[2]


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Growing]:
    with ExitStack() as opened:
        yield Growing(tmp_path_factory.mktemp("growing"), opened)


def patient(condition: object) -> None:
    """A machine that is added takes longer than one event may."""
    for attempt in range(3):
        try:
            until(condition)  # type: ignore[arg-type]
            return
        except AssertionError:
            if attempt == 2:
                raise


def test_a_machine_comes_for_what_waits_and_goes_when_it_is_idle(growing: Growing) -> None:
    """The head has one place: two further runtimes wait, and run on a machine that is added for them. Once the one
    that is not durable has ended, the other one sleeps in the store, and the machine goes. It wakes on the head.
    """
    first = growing.here.runtime("first", sandbox=SMALL)
    first.execute("a = 1")
    with ThreadPoolExecutor() as pool:
        durable = pool.submit(growing.here.runtime, "sleeps", sandbox=SMALL, durable=True)
        other = pool.submit(growing.here.runtime, "ends", sandbox=SMALL)
        sleeps, ends = durable.result(), other.result()
    sleeps.execute("b = 2")
    assert "3" == ends.execute("1 + 2").value
    added = {growing.here.find(name).node for name in ("sleeps", "ends")}
    assert 1 == len(added - {growing.here.find("first").node})
    patient(lambda: not growing.asks)
    growing.here.delete(growing.here.find("ends").id)
    patient(lambda: added.isdisjoint(growing.nodes()))
    patient(lambda: "Terminating node" in growing.autoscaler.log)
    assert "1" == first.execute("a").value
    growing.here.delete(growing.here.find("first").id)
    assert "2" == sleeps.execute("b").value
    growing.here.delete(growing.here.find("sleeps").id)


def test_what_is_asked_for_ends_with_the_gateway(growing: Growing) -> None:
    """Also with one that is killed, and its watcher with it."""
    growing.here.runtime("takes-the-place", sandbox=SMALL)

    def wait() -> None:
        with suppress(CenoteError):  # the platform ends, and nothing else can come of it
            growing.here.runtime("waits", sandbox=SMALL)

    waits = threading.Thread(target=wait)
    waits.start()
    patient(lambda: growing.asks)
    for pid in (growing.platform.watcher, growing.platform.gateway):
        os.kill(pid, signal.SIGKILL)
    patient(lambda: not growing.asks)
    waits.join()
