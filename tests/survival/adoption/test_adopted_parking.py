"""A runtime is taken over while its worker is ended, or is about to be."""

from __future__ import annotations

import random

import pytest
from tests.support.adoption.fixtures import Node, Victim, join, value
from tests.support.adoption.supervising import IDLE
from tests.support.hosted.listening import Heard
from tests.waiting import until

from cenote_worker.execution.results import Rollback
from cenote_worker.supervisor import worker_failover


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IDLE, "0")


def parked(node: Node, code: str) -> Victim:
    """A process whose runtime has run this code, and has no worker any more."""
    victim = node.victim()
    victim.execute(code, "first")
    victim.value("first")
    victim.tell("snapshot", "kept", label="here")  # then the warden knows where the worker is
    victim.value("kept")
    until(lambda: node.worker() < 0)
    return victim


def test_it_is_made_again_for_the_successor(node: Node) -> None:
    victim = parked(node, "x = 41")
    victim.kill()
    runtime = node.adopt()
    assert node.worker() < 0
    assert "42" == value(runtime, "x + 1")
    assert "41" == value(runtime, "x")


def test_a_successor_goes_back(node: Node) -> None:
    """A rollback request reaches the warden after the restart request."""
    victim = parked(node, "x = 41")
    victim.kill()
    runtime, listener = node.adopt(), Heard()
    runtime.rollback("here", listener)
    assert Rollback(step=1) == listener.outcome()
    assert "41" == value(runtime, "x")


def test_it_is_handed_over(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, whatever was requested from the warden in between."""
    victim = parked(node, "x = 41")
    victim.kill()
    monkeypatch.setattr(worker_failover, "IDLE_SECONDS", 0.0)
    first = node.adopt()
    assert "41" == value(first, "x")
    until(first.hand_over)
    second = node.adopt()
    assert "41" == value(second, "x")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_each_cell_runs_once(node: Node, seed: int) -> None:
    """Whenever its host is killed: during a cell, after it, or while the worker ends or starts."""
    chance = random.Random(seed)
    victim = parked(node, "count = 0")
    for number in range(1, 9):
        victim.execute("count += 1; print('line'); count", str(number))
        if chance.random() < 0.8:
            victim.value(str(number))
        if chance.random() < 0.7:
            victim.tell("snapshot", f"kept {number}", label="here")
            if chance.random() < 0.5:
                victim.value(f"kept {number}")
        victim.kill()
        victim = node.adopting()
        victim.wait_for(lambda report: "hosting" in report)
        victim.execute("count += 1; print('line'); count", str(number))
        assert str(number) == victim.value(str(number))
        assert victim.printed[str(number)] in ("line\n", "")
    victim.kill()
    runtime = node.adopt()
    assert "8" == value(runtime, "count")
    assert "8" == join(runtime, "8").result().value
