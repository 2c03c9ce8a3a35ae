"""The components that have works worked on, while the database is unavailable, or a process or an actor cannot be
started: they wait, and go on then.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import until

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.store.database import Database
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.work import processes, ray_actors
from cenote.gateway.work.processes import ProcessOrchestrators
from cenote.gateway.work.ray_actors import OrchestratorActor, RayOrchestrators
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.worker_slots import SlotLimits
from cenote.gateway.work.workload import MAX_FAILURES, Kind
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import TenantId


def settings_in(folder: Path) -> OrchestratorSettings:
    return OrchestratorSettings(state=StateFolder(path=folder), kind="job")


class AwayWorks:
    """One job, for which the database answers from the fourth query on: it is done."""

    kind: Kind = "job"
    share = SlotLimits(at_once=1, of_one_tenant=1)
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

    def expects_more(self) -> bool:
        return False

    def progress(self, work: str) -> Hashable:
        raise AssertionError(work)

    def stuck(self, work: str, reason: str) -> None:
        raise AssertionError(work, reason)


def test_a_gateway_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other component would: the job's next step follows only from working on it."""
    monkeypatch.setattr(processes, "LOOK_EVERY", 0.01)
    works = AwayWorks()
    orchestrators = ProcessOrchestrators(settings_in(tmp_path), works)
    orchestrators.ensure("job")
    try:
        until(works.answered.is_set)
        orchestrators.settle("job", 60.0)
        assert 5 == works.asked  # three failures; then its tenant, and what there is to do
    finally:
        orchestrators.close()


class OpenWorks(AwayWorks):
    """One job that is done when its process has been requested twice."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def is_open(self, work: str) -> bool:
        return self.begun < 2

    def tenant(self, work: str) -> TenantId:
        return TenantId("acme")

    def progress(self, work: str) -> Hashable:
        return self.begun


def test_a_process_for_which_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is requested again."""
    monkeypatch.setattr(processes, "LOOK_EVERY", 0.01)
    works = OpenWorks()

    class Ended:
        def wait(self, patience: float) -> bool:
            return True

    def spawn(*_given: object) -> Ended:
        works.begun += 1
        if works.begun == 1:
            raise OSError(errno.ENOMEM, "no memory")
        return Ended()

    monkeypatch.setattr(processes, "spawn", spawn)
    orchestrators = ProcessOrchestrators(settings_in(tmp_path), works)
    orchestrators.ensure("job")
    try:
        orchestrators.settle("job", 60.0)
        assert 2 == works.begun
    finally:
        orchestrators.close()


def test_whatever_goes_wrong_the_next_wish_begins_anew(tmp_path: Path) -> None:
    works = OpenWorks()
    asked = threading.Semaphore(0)

    def broken(_work: str) -> TenantId:
        asked.release()
        raise ValueError("nobody expected that")

    works.tenant = broken  # type: ignore[method-assign]
    orchestrators = ProcessOrchestrators(settings_in(tmp_path), works)
    try:
        orchestrators.ensure("job")
        assert asked.acquire(timeout=60.0)
        until(lambda: orchestrators.ensure("job") or asked.acquire(blocking=False))
    finally:
        orchestrators.close()


def test_closing_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK_EVERY", 600.0)
    works = AwayWorks()
    orchestrators = ProcessOrchestrators(settings_in(tmp_path), works)
    orchestrators.ensure("job")
    until(lambda: works.asked)
    orchestrators.close()
    assert 1 == works.asked


def test_an_actor_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often: an unavailable database says nothing about the work, so it is not stuck."""
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


def test_an_actor_outlives_whatever_goes_wrong_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray restarts an actor when its process has ended, but not when a thread has."""
    tried: list[int] = []

    def work_once(_actor: OrchestratorActor) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(ray_actors, "environment", lambda _allowed: {})
    monkeypatch.setattr(ray_actors.os, "environ", {})
    monkeypatch.setattr(OrchestratorActor, "_work_once", work_once)
    state = StateFolder(path=tmp_path / "state")
    settings = OrchestratorSettings(state=state, kind="job", work="job", address="", authority="")
    actor = OrchestratorActor(settings.to_json(), ())
    assert actor.settle(60.0)
    assert 2 == len(tried)


class _Actor:
    """An actor whose process runs, as far as its handle shows."""

    def __init__(self) -> None:
        self.woken = threading.Event()

    @property
    def wake(self) -> _Actor:
        return self

    def remote(self) -> None:
        self.woken.set()


def test_an_actor_that_ray_cannot_make_or_kill_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created, or killed, at a later poll. A request for it is handled all the same."""
    made, killed = [_Actor()], []

    def actor(_orchestrators: RayOrchestrators, _work: str) -> _Actor:
        if len(made) == 1:
            made.append(_Actor())
            raise RuntimeError("the head of the cluster is away")
        return made[0]

    def kill(actor: _Actor) -> None:
        killed.append(actor)
        if len(killed) == 1:
            raise ValueError("there is no such actor")

    monkeypatch.setattr(ray_actors, "SWEEP_EVERY", 0.01)
    monkeypatch.setattr(ray_actors.ray.util, "list_named_actors", list)
    monkeypatch.setattr(ray_actors.ray, "kill", kill)
    monkeypatch.setattr(RayOrchestrators, "_actor", actor)
    works = OpenWorks()
    orchestrators = RayOrchestrators(settings_in(tmp_path), works)
    orchestrators.begin("", "")
    try:
        until(made[0].woken.is_set)
        works.begun = 2
        until(lambda: len(killed) >= 2)
        assert {made[0]} == set(killed)  # again and again, as long as it exists
    finally:
        orchestrators.close()


def test_an_actor_whose_work_was_being_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway was killed during the deletion: the next one ends the actor."""
    left, killed = _Actor(), []

    def gone(work: str) -> TenantId:
        raise UnknownEntryError("job", work)

    monkeypatch.setattr(ray_actors.ray.util, "list_named_actors", lambda: ["job/gone", "team/other"])
    monkeypatch.setattr(ray_actors.ray, "get_actor", {"job/gone": left}.get)
    monkeypatch.setattr(ray_actors.ray, "kill", killed.append)
    works = OpenWorks()
    works.tenant, works.begun = gone, 2  # type: ignore[method-assign]
    monkeypatch.setattr(works, "at_work", list)
    orchestrators = RayOrchestrators(settings_in(tmp_path), works)
    orchestrators.begin("", "")
    orchestrators.close()
    assert [left] == killed


def test_settings_of_all_works_reach_each_one(tmp_path: Path) -> None:
    """Traces and the form of logs are the same for each process and each actor."""
    given = replace(settings_in(tmp_path), otlp="http://localhost:4318", log_json=True)
    reached = OrchestratorSettings.from_json(given.of("a job", ("localhost:1", "name")).to_json())
    assert replace(given, work="a job", address="localhost:1", authority="name") == reached


def test_an_actor_writes_its_log_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As processes of a platform without Ray do, if `cenote up --log-json` asks for it."""
    asked = list[bool]()
    monkeypatch.setattr(ray_actors.logs, "set_up", lambda _level, *, as_json: asked.append(as_json))
    monkeypatch.setattr(OrchestratorActor, "_work", lambda _actor: None)
    for log_json in (False, True):
        OrchestratorActor(replace(settings_in(tmp_path), log_json=log_json).to_json(), tuple(os.environ))
    assert [True] == asked
