"""The actor that is made ahead: given out once, replaced when it dies, found again by the next gateway."""

from __future__ import annotations

import pytest
import ray

from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.work import processes, ray_actors
from cenote.gateway.work.ray_actors import OrchestratorActor, SpareActors
from cenote.gateway.work.settings import OrchestratorSettings
from cenote_security.errors import UsageError
from cenote_worker.node.node import HostGone


class Cluster:
    """Actors by their names, as far as their handles show."""

    def __init__(self) -> None:
        self.living: dict[str, Actor] = {}
        self.now = 0.0

    def make(self, name: str) -> Actor:
        self.living[name] = Actor(name)
        return self.living[name]

    def names(self) -> list[str]:
        return list(self.living)

    def find(self, name: str) -> Actor:
        if name not in self.living:
            raise ValueError(name)
        return self.living[name]

    def kill(self, actor: Actor) -> None:
        self.living.pop(actor.name, None)


class Actor:
    def __init__(self, name: str) -> None:
        self.name = name
        self.given: list[str] = []
        self.hangs = False

    @property
    def take(self) -> Actor:
        return self

    work = take

    def remote(self, *settings: str) -> Actor:
        self.given += settings
        return self


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()

    def answer(actor: Actor, _patience: float) -> str:
        if actor.hangs:
            raise HostGone("it was stopped")
        return actor.given[-1] if actor.given else ""

    monkeypatch.setattr(ray.util, "list_named_actors", cluster.names)
    monkeypatch.setattr(ray, "get_actor", cluster.find)
    monkeypatch.setattr(ray, "kill", cluster.kill)
    monkeypatch.setattr(ray_actors, "answer", answer)
    monkeypatch.setattr(processes.time, "monotonic", lambda: cluster.now)
    return cluster


def spares_of(cluster: Cluster) -> SpareActors:
    return SpareActors("job", cluster.make)


def test_it_is_given_out_once(cluster: Cluster) -> None:
    """The next work gets another one, and none of two tenants meet in a process."""
    spares = spares_of(cluster)
    assert spares.take("a", "settings of a") is None
    spares.keep()
    spares.keep()
    (actor,) = cluster.living.values()
    assert actor is spares.take("a", "settings of a")
    assert spares.take("b", "settings of b") is None
    assert ["settings of a"] == actor.given
    spares.keep()
    assert 2 == len(cluster.living)


def test_one_that_dies_idle_is_made_again_after_a_pause(cluster: Cluster) -> None:
    """A machine without memory kills it again and again."""
    spares = spares_of(cluster)
    for pause in (0.2, 0.6):
        spares.keep()
        assert 1 == len(cluster.living)
        cluster.living.clear()
        spares.keep()
        cluster.now += pause - 0.05
        spares.keep()
        assert {} == cluster.living
        cluster.now += 0.1


def test_one_that_dies_with_work_is_lost(cluster: Cluster) -> None:
    spares = spares_of(cluster)
    spares.keep()
    spares.take("a", "settings of a")
    assert [] == spares.lost()
    cluster.living.clear()
    assert ["a"] == spares.lost()
    spares.forget("a")
    assert [] == spares.lost()


def test_the_next_gateway_finds_those_at_work(cluster: Cluster) -> None:
    """It ends the former spare, and one that does not say what it works on: that work is begun anew."""
    former = spares_of(cluster)
    for work in ("a", "b"):
        former.keep()
        former.take(work, work)
    former.keep()
    next(actor for actor in cluster.living.values() if actor.given == ["b"]).hangs = True
    cluster.make("job/other")
    spares = spares_of(cluster)
    assert ["a"] == [work for work, _ in spares.adopt(cluster.names())]
    assert [["a"], []] == [actor.given for actor in cluster.living.values()]
    cluster.living.clear()
    assert ["a"] == spares.lost()


def test_it_is_ended_with_its_gateway(cluster: Cluster) -> None:
    spares = spares_of(cluster)
    spares.keep()
    spares.drop()
    spares.drop()
    assert {} == cluster.living


def test_an_actor_takes_one_work(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its whole life: nothing of one job's is in the process of another."""
    monkeypatch.setattr(OrchestratorActor, "_work", lambda _actor: None)
    monkeypatch.setattr("cenote.gateway.work.ray_actors.environment", lambda _allowed: {})
    monkeypatch.setattr("cenote.gateway.work.ray_actors.os.environ", {})
    none = OrchestratorSettings(state=StateFolder(path=tmp_path), kind="job")  # type: ignore[arg-type]
    actor = OrchestratorActor(none.to_json(), ())
    assert "" == actor.work()
    actor.take(none.of("a", ("localhost:1", "")).to_json())
    with pytest.raises(UsageError, match="works on a"):
        actor.take(none.of("b", ("localhost:1", "")).to_json())
    assert "a" == actor.work()
