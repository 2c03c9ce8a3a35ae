"""The port to whoever works on teams; behind it, without Ray, a process of the gateway's for each team at work."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Final, Protocol

from cenote.gateway.state_folder import StateFolder
from cenote.gateway.teams.news import NewsTable
from cenote.gateway.teams.orchestrator_settings import OrchestratorSettings
from cenote.gateway.teams.process_unsafe import OrchestratorProcess, spawn
from cenote.gateway.teams.runs import Runs
from cenote.gateway.teams.table import Teams
from cenote_security.errors import CenoteError, UnknownEntryError
from cenote_security.ids import TeamId, TenantId

log = logging.getLogger("cenote.teams")

AT_ONCE: Final = 16
"""Teams of all tenants that are worked on; others wait. A process takes some hundred megabytes."""

OF_ONE_TENANT: Final = 4

MAX_FAILURES: Final = 5
"""Processes, one after the other, that end without having got any further; then what the team does has failed."""

FIRST_PAUSE: Final = 0.2


class Orchestrators(Protocol):
    """Calls are thread-safe."""

    def begin(self, address: str, authority: str) -> None:
        """The gateway listens there. Takes up what former gateways have left."""

    def ensure(self, team: TeamId) -> None:
        """Sees to it that somebody works on what the team has to do. Does not wait for it."""

    def settle(self, team: TeamId, patience: float) -> None:
        """Waits until nobody works on the team any more, which has nothing to do."""

    def close(self, *, orderly: bool = True) -> None:
        """Ends all that work. Closing twice is fine.

        orderly: not behind an error, such as for a port that is taken: a former gateway's teams may be at work still.
        """


class ProcessOrchestrators:
    """A process per team that has something to do, started again when it was killed.

    environment: names of variables that these processes find, besides what programs need to run.
    """

    def __init__(
        self,
        state: StateFolder,
        teams: Teams,
        runs: Runs,
        news: NewsTable,
        environment: Collection[str] = (),
    ) -> None:
        self._state = state
        self._teams = teams
        self._runs = runs
        self._news = news
        self._environment = frozenset(environment)
        self._where = ("", "")
        self._lock = threading.Lock()
        self._threads: dict[TeamId, threading.Thread] = {}
        self._processes: dict[TeamId, OrchestratorProcess] = {}
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._shares: dict[TenantId, threading.BoundedSemaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(OF_ONE_TENANT)
        )
        self._closing = threading.Event()

    def begin(self, address: str, authority: str) -> None:
        self._where = address, authority
        for team in self._runs.teams_at_work():
            self.ensure(team)

    def ensure(self, team: TeamId) -> None:
        with self._lock:
            if team not in self._threads and not self._closing.is_set():
                thread = threading.Thread(
                    target=self._look_after, args=(team,), name=f"cenote-{team}", daemon=True
                )
                self._threads[team] = thread
                thread.start()

    def settle(self, team: TeamId, patience: float) -> None:
        with self._lock:
            thread = self._threads.get(team)
        if thread is not None:
            thread.join(patience)

    def process(self, team: TeamId) -> int:
        """The number of the process that works on a team; 0 for none."""
        with self._lock:
            process = self._processes.get(team)
        return 0 if process is None else process.pid

    def close(self, *, orderly: bool = True) -> None:  # noqa: ARG002  (its processes end with this one anyway)
        with self._lock:
            self._closing.set()
            processes, threads = list(self._processes.values()), list(self._threads.values())
        for process in processes:
            process.kill()
        for thread in threads:
            thread.join()

    def _look_after(self, team: TeamId) -> None:
        try:
            share = self._shares[self._teams.of_all(team).tenant]
            while self._has_work(team):
                with share, self._places:
                    self._work(team)
        except CenoteError as error:  # its next run tries again
            log.error("%s cannot be worked on: %s", team, error)
            with self._lock:
                self._threads.pop(team, None)

    def _has_work(self, team: TeamId) -> bool:
        """Once it has not, the next `ensure` starts anew."""
        with self._lock:
            if not self._closing.is_set() and self._runs.open(team):
                return True
            self._threads.pop(team, None)
            return False

    def _work(self, team: TeamId) -> None:
        """Until there is nothing to do, or nobody gets any further."""
        failures, before = 0, self._progress(team)
        while self._runs.open(team) and not self._closing.wait(FIRST_PAUSE * (2**failures - 1)):
            self._run_process(team)
            now = self._progress(team)
            failures, before = (failures + 1 if now == before else 0), now
            if failures == MAX_FAILURES:
                reason = (
                    f"{MAX_FAILURES} processes ended without getting any further; the platform's log says why"
                )
                self._runs.give_up(team, reason)
                return

    def _run_process(self, team: TeamId) -> None:
        address, authority = self._where
        settings = OrchestratorSettings(state=self._state, team=team, address=address, authority=authority)
        with self._lock:
            if self._closing.is_set():
                return
            process = self._processes[team] = spawn(settings.to_json(), self._state.log, self._environment)
        process.wait()
        with self._lock, suppress(KeyError):
            del self._processes[team]

    def _progress(self, team: TeamId) -> tuple[int, ...]:
        try:
            self._teams.of_all(team)
        except UnknownEntryError:
            return ()
        return (self._news.kept(team)[1], *(run.number for run in self._runs.open(team)))
