"""Teams worked on by Ray actors: one per team that has something to do, started again by Ray when it was killed.

No code of a user or a model runs in these processes: they are clients of runtimes, and speak to models.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError

from cenote.gateway.database import Database
from cenote.gateway.state_folder import StateFolder
from cenote.gateway.teams.ledger import SupersededError
from cenote.gateway.teams.orchestrator import Orchestrator
from cenote.gateway.teams.orchestrator_settings import OrchestratorSettings
from cenote.gateway.teams.orchestrators import FIRST_PAUSE, MAX_FAILURES
from cenote.gateway.teams.process_unsafe import environment
from cenote.gateway.teams.runs import Runs
from cenote_security.errors import CenoteError
from cenote_security.ids import TeamId
from cenote_worker.cluster.node import HostGone
from cenote_worker.cluster.ray_calls import answer, here

log = logging.getLogger("cenote.teams")

PREFIX: Final = "team/"

MAX_RESTARTS: Final = 100
"""Of one actor's life, which ends when its team has nothing to do: what kills so many is no accident."""

SWEEP_EVERY: Final = 5.0
"""Seconds between two looks for actors with nothing to do; one costs some hundred megabytes."""


class OrchestratorActor:
    """An Orchestrator as a Ray actor. It works from its constructor on: that is all that Ray runs again."""

    def __init__(self, settings: str, allowed: tuple[str, ...]) -> None:
        kept = environment(allowed)
        for name in set(os.environ) - set(kept):
            if not name.startswith("RAY_"):
                del os.environ[name]
        os.environ.update(kept)
        self._settings = OrchestratorSettings.from_json(settings)
        self._woken = threading.Event()
        self._idle = threading.Event()
        self._woken.set()
        threading.Thread(target=self._work, name="cenote-team", daemon=True).start()

    def wake(self) -> None:
        """There is something to do."""
        self._idle.clear()
        self._woken.set()

    def settle(self, patience: float) -> bool:
        """Waits until there is nothing to do. False when it takes too long."""
        return self._idle.wait(patience)

    def _work(self) -> None:
        failures = 0
        while self._woken.wait():
            self._woken.clear()
            try:
                self._work_once()
                failures = 0
            except SupersededError:
                pass
            except CenoteError as error:
                failures += 1
                log.error("%s cannot be worked on: %s", self._settings.team, error)
                self._again(failures)
            if not self._woken.is_set():
                self._idle.set()

    def _work_once(self) -> None:
        with Database(self._settings.state.database) as database:
            at_work = bool(Runs(database).open(self._settings.team))
        if at_work:
            Orchestrator(self._settings).work()

    def _again(self, failures: int) -> None:
        if failures < MAX_FAILURES:
            time.sleep(FIRST_PAUSE * 2**failures)
            self._woken.set()
            return
        with Database(self._settings.state.database) as database:
            reason = f"{failures} tries did not get any further; the log of the cluster says why"
            Runs(database).give_up(self._settings.team, reason)


class RayOrchestrators:
    """See Orchestrators. On the gateway's machine, where the store and the secrets are."""

    def __init__(self, state: StateFolder, runs: Runs, allowed: Collection[str] = ()) -> None:
        self._state = state
        self._runs = runs
        self._allowed = tuple(allowed)
        self._where = ("", "")
        self._lock = threading.Lock()
        self._actors: dict[TeamId, Any] = {}
        self._closing = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="cenote-teams", daemon=True)

    def begin(self, address: str, authority: str) -> None:
        self._where = address, authority
        self._adopt()
        self._sweeper.start()
        for team in self._runs.teams_at_work():
            self.ensure(team)

    def ensure(self, team: TeamId) -> None:
        with self._lock:
            if team not in self._actors:
                self._actors[team] = self._actor(team)
            self._actors[team].wake.remote()

    def settle(self, team: TeamId, patience: float) -> None:
        with self._lock:
            actor = self._actors.pop(team, None)
        if actor is not None:
            try:
                answer(actor.settle.remote(patience), patience)
            except (HostGone, CenoteError) as error:
                log.warning("%s is ended at its work: %s", team, error)
            ray.kill(actor)

    def close(self, *, orderly: bool = True) -> None:
        with self._lock:
            self._closing.set()
            actors, self._actors = list(self._actors.values()), {}
        for actor in actors if orderly else ():
            ray.kill(actor)
        if self._sweeper.is_alive():
            self._sweeper.join()

    def _adopt(self) -> None:
        """Actors that a former gateway has started: one whose work came to its end without a gateway is idle now."""
        for name in ray.util.list_named_actors():
            team = TeamId(name.removeprefix(PREFIX))
            if name.startswith(PREFIX) and self._runs.of(team, 1):
                with suppress(ValueError):  # it has ended just now
                    self._actors[team] = ray.get_actor(name)

    def _actor(self, team: TeamId) -> Any:
        address, authority = self._where
        settings = OrchestratorSettings(state=self._state, team=team, address=address, authority=authority)
        return (
            ray.remote(OrchestratorActor)
            .options(
                name=PREFIX + team,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=MAX_RESTARTS,
                max_concurrency=4,
                scheduling_strategy=here(),
            )
            .remote(settings.to_json(), self._allowed)
        )

    def _sweep(self) -> None:
        while not self._closing.wait(SWEEP_EVERY):
            try:
                self._dismiss_idle()
            except (CenoteError, RayError) as error:
                log.warning("teams could not be looked after: %s", error)

    def _dismiss_idle(self) -> None:
        with self._lock:
            idle = [team for team in self._actors if not self._runs.open(team)]
            for team in idle:
                ray.kill(self._actors.pop(team))
