"""What is said of machines that do not answer, and which one a new runtime is placed on; without Ray."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from cenote.gateway.machines import ray_nodes
from cenote.gateway.machines.ray_nodes import RayNodes
from cenote_security.errors import UnavailableError
from cenote_worker.node.node import NodeStatus

PROMETHEUS_SECONDS = 10.0
"""Its default, for a scrape."""


class FakeAgent:
    """An agent and its calls in one: a call's answer is None while it is silent."""

    def __init__(self, name: str, runtimes: int = 0, *, draining: bool = False) -> None:
        self._facts = NodeStatus(
            node=name, hosts=1, runtimes=runtimes, references=0, reference_bytes=0, draining=draining
        )
        self.silent = False
        self.facts = self.any_address = self.limit = self

    def remote(self, *_: object) -> NodeStatus | None:
        return None if self.silent else self._facts


class Cluster:
    """Nodes over such agents. waited: the seconds that each round of questions may take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *agents: FakeAgent) -> None:
        self.waited: list[float] = []
        self.agents = {agent._facts.node: agent for agent in agents}
        monkeypatch.setattr(ray_nodes, "answers", self._answers)
        self.nodes = RayNodes(None, lambda: self.agents, lambda _node: False, threading.Event())  # type: ignore[arg-type]

    def _answers(self, asked: Mapping[str, Any], patience: float, _ending: threading.Event) -> dict[str, Any]:
        self.waited.append(patience)
        return {node: answer for node, answer in asked.items() if answer is not None}

    def silent(self) -> list[str]:
        return [node.id for node in self.nodes.describe() if node.silent]


def test_a_scrape_hears_that_a_machine_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has answered before is not waited for until the scrape is given up."""
    cluster = Cluster(monkeypatch, FakeAgent("a"), FakeAgent("b"))
    assert [] == cluster.silent()
    cluster.waited.clear()
    cluster.agents["b"].silent = True
    assert ["b"] == cluster.silent()
    assert sum(cluster.waited) < PROMETHEUS_SECONDS


def test_a_machine_that_comes_up_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, FakeAgent("a"))
    cluster.silent()
    cluster.agents["b"] = FakeAgent("b")
    cluster.waited.clear()
    cluster.silent()
    assert [ray_nodes.NEWS_SECONDS] * 2 == cluster.waited


def test_a_runtime_goes_to_the_emptiest_machine_that_is_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, FakeAgent("a", 2), FakeAgent("b", 0, draining=True), FakeAgent("c", 1))
    assert "c" == cluster.nodes._emptiest()


def test_where_all_are_drained_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is one machine alone."""
    cluster = Cluster(monkeypatch, FakeAgent("a", draining=True))
    with pytest.raises(UnavailableError, match="cenote node resume"):
        cluster.nodes._emptiest()


def test_where_no_machine_answers_the_error_does_not_blame_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be built there; where machines answer that have it not, the error names it."""
    cluster = Cluster(monkeypatch, FakeAgent("a"))
    with pytest.raises(UnavailableError, match="has environment 0123456789ab;"):
        cluster.nodes._emptiest("0123456789abcdef")
    cluster.agents["a"].silent = True
    with pytest.raises(UnavailableError, match="no machine of the cluster answers"):
        cluster.nodes._emptiest("0123456789abcdef")
