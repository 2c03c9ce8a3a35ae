"""A cluster that is joined by `ray://`, from outside of it: it works like one that is joined by its address."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster.foreign import RayMachine
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill, title
from tests.waiting import until

from cenote.gateway.machines.own_cluster_unsafe import _free_ports

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A platform, and the cluster of one machine that it has joined."""

    platform: StandingPlatform
    machine: RayMachine

    def command(self, *words: str) -> str:
        """Runs `cenote runtime`."""
        verb, *others = words
        return self.platform.command("runtime", verb, "--address", self.platform.address, *others).stdout

    @property
    def agents(self) -> list[int]:
        return self.machine.processes("ray::NodeAgent")


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    with ExitStack() as opened:
        platform = StandingPlatform(tmp_path)
        (port,) = _free_ports(1)
        machine = RayMachine(platform.environment, client_port=port)
        opened.callback(machine.end)
        machine.wait()
        platform.up("--relay", "--ray-address", f"ray://127.0.0.1:{port}")
        yield Joined(platform=platform, machine=machine)
        platform.command("down")


def test_a_hung_agent_is_replaced_and_the_log_says_so_once(joined: Joined) -> None:
    """Another process replaces it, the runtimes continue, and nothing else is logged."""
    joined.command("create", "far")
    assert "42\n" == joined.command("exec", "far", "-c", "kept = 42; kept")
    (agent,) = joined.agents
    os.kill(agent, signal.SIGSTOP)
    try:
        until(lambda: bool(set(joined.agents) - {agent}))
    finally:
        if agent in joined.agents:
            os.kill(agent, signal.SIGCONT)
    assert "42\n" == joined.command("exec", "far", "-c", "kept")
    joined.command("create", "another")
    log = (joined.platform.state / "platform.log").read_text()
    assert 1 == log.count("does not answer; it is killed, and started again")
    assert "Traceback" not in log


def test_a_line_that_is_lost_is_taken_up_again(joined: Joined) -> None:
    """The process that serves this gateway at the cluster's head is killed, and its state is lost. The runtimes still
    exist."""
    joined.command("create", "far")
    assert "42\n" == joined.command("exec", "far", "-c", "kept = 42; kept")
    gateway = joined.platform.gateway
    (server,) = [pid for pid in joined.machine.processes() if "--mode=specific-server" in title(pid)]
    kill(server)
    log = joined.platform.state / "platform.log"
    until(lambda: "the line to the Ray cluster is lost" in log.read_text())
    until(lambda: joined.platform.gateway != gateway and joined.platform.answers)
    assert "42\n" == joined.command("exec", "far", "-c", "kept")
    assert 1 == log.read_text().count("the line to the Ray cluster is lost")
