"""Snapshots of a runtime live in its jail: they outlive its host process."""

from __future__ import annotations

import pytest
from tests.support.adoption.fixtures import Node, Victim, value
from tests.support.hosted.listening import Heard

from cenote_security.errors import NotKeptError
from cenote_worker.execution.results import Rollback
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.frame_parser import KeptReply
from cenote_worker.supervisor.requests import Outcome


def roll_back(runtime: HostedRuntime, to: int | str, key: str) -> Outcome:
    listener = Heard()
    runtime.rollback(to, listener, RequestKey(text=key))
    return listener.outcome()


def three_steps(victim: Victim) -> None:
    victim.execute("x = 1; g = (n for n in range(9)); next(g)", "a")
    victim.value("a")
    victim.tell("snapshot", "kept", label="clean")
    assert "KeptReply" == victim.value("kept")
    victim.execute("x = 2; list(g)", "b")
    victim.execute("x", "c")
    assert "2" == victim.value("c")


def test_snapshots_outlive_their_host(node: Node) -> None:
    """Killed, and rolled back by its successor: to a label, and forward again to a step."""
    victim = node.victim()
    three_steps(victim)
    victim.kill()
    runtime = node.adopt()
    assert Rollback(step=1) == roll_back(runtime, "clean", "there")
    assert "(1, 1)" == value(runtime, "x, next(g)")
    assert Rollback(step=3) == roll_back(runtime, 3, "back")
    assert "2" == value(runtime, "x")


def test_outcomes_of_keyed_requests_outlive_it(node: Node) -> None:
    """A client that asks again gets the first outcome, and nothing is done again."""
    victim = node.victim()
    three_steps(victim)
    for key, to in (("there", "clean"), ("no step", 7), ("no label", "nowhere")):
        victim.tell("rollback", key, to=to)
        victim.value(key)
    victim.kill()
    runtime = node.adopt()
    value(runtime, "x = 5")
    assert Rollback(step=1) == roll_back(runtime, "clean", "there")
    assert [7, "nowhere"] == [
        error.target
        for error in (roll_back(runtime, 7, "no step"), roll_back(runtime, "nowhere", "no label"))
        if isinstance(error, NotKeptError)
    ]
    listener = Heard()
    runtime.snapshot("clean", listener, RequestKey(text="kept"))
    assert KeptReply(1) == listener.outcome()
    assert "5" == value(runtime, "x")


@pytest.mark.parametrize("reports", [0, 1, 2])
def test_killed_in_the_middle_of_a_rollback(node: Node, reports: int) -> None:
    """At any instruction: its client asks again with the same key, and the state is the requested one."""
    victim = node.victim()
    three_steps(victim)
    victim.tell("rollback", "there", to="clean")
    victim.tell("rollback", "again", to=3)
    victim.tell("rollback", "at last", to="clean")
    for key in ("there", "again")[:reports]:
        assert "Rollback" == victim.value(key)
    victim.kill()
    runtime = node.adopt()
    assert Rollback(step=1) == roll_back(runtime, "clean", "at last")
    assert "(1, 1)" == value(runtime, "x, next(g)")
