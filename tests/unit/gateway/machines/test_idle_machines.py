"""Which machines are drained and given back, without Ray."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from cenote.gateway.machines import idle_machines
from cenote.gateway.machines.idle_machines import IdleMachines
from cenote_worker.node.node import NodeUse

AFTER = 60.0


class _Call:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def remote(self, *given: object) -> Any:
        return self._answer(*given)


class Agent:
    """use: what it is used for. It leaves if that is nothing."""

    def __init__(self, use: NodeUse) -> None:
        self.found = use
        self.drained: list[bool] = []
        self.use = _Call(lambda: self.found)
        self.drain = _Call(lambda wanted: self.drained.append(wanted) or {})  # type: ignore[func-returns-value]
        self.leave = _Call(lambda: not (self.found.lasting or self.found.durable or self.found.references))


class Machines:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, agents: Mapping[str, Agent], *, after: float = AFTER
    ) -> None:
        monkeypatch.setattr(idle_machines, "answers", lambda asked, *_: dict(asked))
        self.given_back: list[str] = []
        self.doomed: set[str] = set()
        self.idle = IdleMachines(
            lambda: agents,
            give_back=self.given_back.append,
            doomed=lambda: self.doomed,
            stays=lambda node: node == "head",
            after=after,
            ending=threading.Event(),
        )


def test_a_machine_that_nothing_uses_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time, unless it has Ray's head: no autoscaler removes that one."""
    unused = NodeUse(quiet=AFTER)
    agents = {"a": Agent(unused), "b": Agent(NodeUse(quiet=AFTER - 1)), "head": Agent(unused)}
    machines = Machines(monkeypatch, agents)
    machines.idle.look()
    assert ["a"] == machines.given_back
    assert [] == agents["a"].drained


def test_none_is_given_back_where_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(monkeypatch, {"a": Agent(NodeUse(quiet=1e9))}, after=0)
    machines.idle.look()
    assert [] == machines.given_back


def test_durable_runtimes_leave_an_idle_machine_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain is repeated until they have left, and ended if one of them is called again."""
    agent = Agent(NodeUse(quiet=AFTER, durable=1))
    machines = Machines(monkeypatch, {"a": agent})
    machines.idle.look()
    machines.idle.look()
    assert ([True, True], []) == (agent.drained, machines.given_back)
    agent.found = NodeUse(quiet=0, durable=1)
    machines.idle.look()
    machines.idle.look()
    assert [True, True, False] == agent.drained
    agent.found = NodeUse(quiet=AFTER)
    machines.idle.look()
    assert ["a"] == machines.given_back


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (NodeUse(quiet=AFTER, lasting=frozenset({"rt_1", "rt_2"}), durable=1), "rt_1, rt_2"),
        (NodeUse(quiet=AFTER, references=3), "3 shared values"),
    ],
)
def test_a_machine_stays_with_what_would_be_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, use: NodeUse, named: str
) -> None:
    """The log names it once. Its durable runtimes stay too: nothing would be won."""
    agent = Agent(use)
    machines = Machines(monkeypatch, {"a": agent})
    machines.idle.look()
    machines.idle.look()
    assert [f"machine a is idle, and stays because these would be lost with it: {named}"] == caplog.messages
    assert ([], []) == (agent.drained, machines.given_back)


def test_a_machine_that_ray_removes_is_drained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the one with the head, whether it is idle or not, and where none is given back."""
    agent = Agent(NodeUse(quiet=0, durable=1, lasting=frozenset({"rt_1"})))
    machines = Machines(monkeypatch, {"head": agent}, after=0)
    machines.idle.look()
    assert [] == agent.drained
    machines.doomed = {"head"}
    machines.idle.look()
    machines.idle.look()
    assert [True, True] == agent.drained
    assert [message for message in caplog.messages if "rt_1" in message] == [
        "Ray is about to remove machine head, and these are lost with it: rt_1"
    ]
    assert [] == machines.given_back
