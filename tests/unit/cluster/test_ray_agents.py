"""The error for a caller that needs a cluster's agents while its head is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cenote.gateway.machines import ray_agents
from cenote.gateway.machines.ray_agents import RayAgents
from cenote_security.errors import UnavailableError
from cenote_worker.node.ray.cluster import RayMachine


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (RuntimeError("Failed to connect"), UnavailableError),
        (ConnectionError("it is away"), UnavailableError),
        (ValueError("no such actor"), ValueError),
    ],
)
def test_a_cluster_whose_head_is_away(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, told: type[Exception]
) -> None:
    """The error says that it does not answer, whatever Ray calls that; the lookup of a starting actor is repeated."""

    def away(*_given: object, **_more: object) -> Any:
        raise raised

    monkeypatch.setattr(ray_agents, "machines", away)
    with pytest.raises(told, match=str(raised)):
        RayAgents(None)()  # type: ignore[arg-type]


class _Growing:
    """A cluster whose machines have places, without Ray. asked: the numbers of places that it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machines: dict[str, RayMachine] = {}
        self.asked: list[int] = []
        self.silent: set[str] = set()
        monkeypatch.setattr(ray_agents, "FRESH_FOR", -1.0)
        monkeypatch.setattr(ray_agents, "machines", lambda _: dict(self.machines))
        monkeypatch.setattr(ray_agents, "ensure_agents", self._ensured)
        monkeypatch.setattr(ray_agents, "RoomDemand", lambda: SimpleNamespace(ask=self.asked.append))
        monkeypatch.setattr(ray_agents, "answer", lambda name, *_: name)
        monkeypatch.setattr(ray_agents.ray, "wait", self._waited)
        monkeypatch.setattr(ray_agents.ray, "kill", lambda _: None)
        self.agents = RayAgents(SimpleNamespace(by_places=True, only_node=""))  # type: ignore[arg-type]

    def _ensured(self, _settings: Any, found: Any, without: Any) -> dict[str, Any]:
        return {raylet: _Agent(raylet) for raylet in found if raylet not in without}

    def _waited(self, asked: list[str], **_: object) -> tuple[list[str], list[str]]:
        return [name for name in asked if name not in self.silent], []

    def join(self, raylet: str, places: int) -> None:
        self.machines[raylet] = RayMachine(facts={}, places=places, head=False)

    def look(self) -> tuple[set[str], int]:
        """The machines with an agent, and what the cluster was asked for."""
        return set(self.agents()), self.asked[-1]


class _Agent:
    def __init__(self, raylet: str) -> None:
        self.name = self.dissolve = SimpleNamespace(remote=lambda: raylet)


def test_what_waits_is_asked_for_until_a_machine_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was reserved on it is let go of at once, for its agent; what it cannot take is asked for again. While an
    agent starts, its places are as good as there.
    """
    cluster = _Growing(monkeypatch)
    assert (set(), 0) == cluster.look()
    cluster.agents.want(5)
    assert (set(), 5) == cluster.look()
    cluster.join("a", 2)
    cluster.silent = {"a"}
    assert (set(), 0) == cluster.look()
    assert (set(), 3) == cluster.look()
    cluster.silent = set()
    assert ({"a"}, 3) == cluster.look()
    cluster.agents.want(3)
    assert ({"a"}, 3) == cluster.look()
    cluster.agents.want(0)
    assert ({"a"}, 0) == cluster.look()


def test_a_machine_that_was_given_back_is_taken_again_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no agent until then; one that has gone is forgotten."""
    cluster = _Growing(monkeypatch)
    for raylet in ("a", "b", "c"):
        cluster.join(raylet, 2)
    cluster.look()
    for raylet in ("a", "b"):
        cluster.agents.give_back(raylet)
    assert ({"c"}, 0) == cluster.look()
    del cluster.machines["a"]
    cluster.agents.want(3)
    assert ({"b", "c"}, 0) == cluster.look()  # its agent is to start first
    cluster.look()
    assert ({"b", "c"}, 3) == cluster.look()
