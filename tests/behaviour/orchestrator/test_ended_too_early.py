"""Processes and actors that end before they have begun a run: it fails and says so, and the next run has its turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.waiting import until

from cenote.gateway.store.database import Database
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.tenants import Tenants
from cenote.gateway.teams.tables import TeamEventTable, TeamRunTable, TeamTable, TeamWorkload
from cenote.gateway.work import processes, ray_actors
from cenote.gateway.work.process_unsafe import OrchestratorProcess, spawn
from cenote.gateway.work.processes import ProcessOrchestrators
from cenote.gateway.work.ray_actors import OrchestratorActor
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.workload import MAX_FAILURES
from cenote_security.ids import TeamId


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(path=tmp_path / "state")
    state.path.mkdir()
    return state


def team_with_runs(database: Database, number: int) -> TeamId:
    """Without its folder, as a disk that is not there leaves it: each process ends before it begins a run."""
    team = TeamTable(database).add(Tenants(database).create("us").id, "team", b"").id
    for _ in range(number):
        TeamRunTable(database).add(team, b"", "")
    return team


def check_given_up(database: Database, team: TeamId, number: int) -> None:
    runs, events = TeamRunTable(database), TeamEventTable(database).after(team, 0)
    for run in range(1, number + 1):
        assert "failed" == runs.get(team, run).state
        assert f"{MAX_FAILURES} " in runs.get(team, run).error
    assert [("failed", run) for run in range(1, number + 1)] == [(each.kind, each.run) for each in events]


def test_processes_that_are_killed(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones, as soon as they are there; the runs waited for ever, with a new process each minute."""
    started: list[OrchestratorProcess] = []

    def spawned(*given: object) -> OrchestratorProcess:
        started.append(process := spawn(*given))  # type: ignore[arg-type]
        process.kill()
        return process

    monkeypatch.setattr(processes, "spawn", spawned)
    monkeypatch.setattr(processes, "pause_after", lambda _failures: 0.0)
    with Database(state.database) as database:
        team = team_with_runs(database, 2)
        settings = OrchestratorSettings(state=state, kind="team")
        orchestrators = ProcessOrchestrators(settings, TeamWorkload(database))
        orchestrators.begin("localhost:1", "")
        try:
            until(lambda: not TeamRunTable(database).open(team))
        finally:
            orchestrators.close()
        check_given_up(database, team, 2)
    assert 2 * MAX_FAILURES == len(started)


def test_an_actor_that_cannot_begin(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its tries."""
    monkeypatch.setattr(ray_actors, "environment", lambda _allowed: dict(os.environ))
    monkeypatch.setattr(ray_actors, "pause_after", lambda _failures: 0.0)
    with Database(state.database) as database:
        team = team_with_runs(database, 2)
        settings = OrchestratorSettings(state=state, kind="team").of(team, ("localhost:1", ""))
        actor = OrchestratorActor(settings.to_json(), ())
        assert actor.settle(60.0)
        check_given_up(database, team, 2)
