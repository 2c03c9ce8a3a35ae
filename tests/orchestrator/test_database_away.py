"""Who sees to it that works are worked on, while the database cannot be used: they wait for it, and go on then."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from pathlib import Path

import pytest
from tests.waiting import until

from cenote.gateway.database import Database
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.orchestrators import processes, ray_actors
from cenote.gateway.orchestrators.places import Share
from cenote.gateway.orchestrators.processes import ProcessOrchestrators
from cenote.gateway.orchestrators.ray_actors import OrchestratorActor
from cenote.gateway.orchestrators.settings import OrchestratorSettings
from cenote.gateway.orchestrators.works import MAX_FAILURES, Kind
from cenote.gateway.state_folder import StateFolder
from cenote_security.ids import TenantId


class AwayWorks:
    """One job, of which the database tells from the fourth question on: it is done."""

    kind: Kind = "job"
    share = Share(at_once=1, of_one_tenant=1)
    can_make_room = True

    def __init__(self) -> None:
        self.asked = 0
        self.answered = threading.Event()

    def _ask(self) -> None:
        self.asked += 1
        if self.asked < 4:
            raise DatabaseUnavailableError("here", "it is away")

    def at_work(self) -> Sequence[str]:
        return ["job"]

    def is_open(self, work: str) -> bool:
        self._ask()
        self.answered.set()
        return False

    def tenant(self, work: str) -> TenantId:
        self._ask()
        return TenantId("acme")

    def progress(self, work: str) -> Hashable:
        raise AssertionError(work)

    def stuck(self, work: str, reason: str) -> None:
        raise AssertionError(work, reason)


def test_a_gateway_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would: what a job has to do next comes of its being worked on."""
    monkeypatch.setattr(processes, "LOOK_EVERY", 0.01)
    works = AwayWorks()
    orchestrators = ProcessOrchestrators(StateFolder(path=tmp_path), works)
    orchestrators.ensure("job")
    try:
        until(works.answered.is_set)
        orchestrators.settle("job", 60.0)
        assert 5 == works.asked  # three times in vain; then whose it is, and what there is to do
    finally:
        orchestrators.close()


def test_closing_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK_EVERY", 600.0)
    works = AwayWorks()
    orchestrators = ProcessOrchestrators(StateFolder(path=tmp_path), works)
    orchestrators.ensure("job")
    until(lambda: works.asked)
    orchestrators.close()
    assert 1 == works.asked


def test_an_actor_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often: a database that is away says nothing of the work, so it is not stuck."""
    monkeypatch.setattr(ray_actors, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(ray_actors, "environment", lambda _allowed: {})
    monkeypatch.setattr(ray_actors.os, "environ", {})
    state = StateFolder(path=tmp_path / "state")
    state.path.mkdir()
    state.database.mkdir()
    settings = OrchestratorSettings(state=state, kind="job", work="job", address="", authority="")
    actor = OrchestratorActor(settings.to_json(), ())
    until(lambda: len(caplog.records) > 2 * MAX_FAILURES)
    assert not actor.settle(0.0)
    state.database.rmdir()
    Database(state.database).close()
    assert actor.settle(60.0)
