"""Tables of teams: the teams of each tenant, their runs, and their numbered events. The only place with their SQL.

`TeamWorkload` is the view for code that starts processes for teams.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.store.database import NO_LIMIT, Database
from cenote.gateway.store.session import DatabaseRow
from cenote.gateway.values.names import check_name
from cenote.gateway.work.worker_slots import SlotLimits, share_of
from cenote.gateway.work.workload import Kind
from cenote_security.errors import EntryExistsError, UnknownEntryError
from cenote_security.ids import TeamId, TenantId, new_team_id
from cenote_worker.supervisor.start import machine_memory

_STATES: Final = "SELECT id, state FROM teams"

ID_PREFIX: Final = "tm_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRow:
    """definition: the serialised message. state: a TeamState's JSON; empty before the first run.

    epoch: how many processes have worked on it. created: seconds since the epoch.
    """

    id: TeamId
    tenant: TenantId
    name: str
    created: float
    definition: bytes
    state: str
    epoch: int


class TeamTable:
    """The teams of all tenants, seen by one tenant at a time."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(self, tenant: TenantId, name: str, definition: bytes) -> TeamRow:
        """Raises UsageError for a bad name, EntryExistsError when this tenant has a team of that name."""
        team = new_team_id()
        sql = "INSERT INTO teams (tenant_id, id, name, created, definition) VALUES (?, ?, ?, ?, ?)"
        values = (tenant, team, check_name("team", name), self._clock(), definition.hex())
        try:
            self._database.execute(sql, *values)
        except DuplicateRowError:
            raise EntryExistsError("team", name) from None
        return self.find(tenant, team)

    def define(self, tenant: TenantId, team: TeamId, definition: bytes) -> None:
        """Changes the members, from the next run on."""
        sql = "UPDATE teams SET definition = ? WHERE tenant_id = ? AND id = ?"
        self._database.execute(sql, definition.hex(), tenant, team)

    def find(self, tenant: TenantId, text: str) -> TeamRow:
        """By name or id. Raises UnknownEntryError."""
        by_id = "SELECT * FROM teams WHERE tenant_id = ? AND id = ?"
        by_name = "SELECT * FROM teams WHERE tenant_id = ? AND name = ?"
        row = self._database.row(by_id if text.startswith(ID_PREFIX) else by_name, tenant, text)
        if row is None:
            raise UnknownEntryError("team", text)
        return _team(row)

    def of(self, tenant: TenantId, *, after: str = "", limit: int = NO_LIMIT) -> list[TeamRow]:
        """By name, those after `after`."""
        sql = "SELECT * FROM teams WHERE tenant_id = ? AND name > ? ORDER BY name LIMIT ?"
        return [_team(row) for row in self._database.rows(sql, tenant, after, limit)]

    def ids(self) -> list[TeamId]:
        """All tenants'. For the gateway itself."""
        return [row["id"] for row in self._database.rows("SELECT id FROM teams")]

    def spent_of_all(self) -> dict[TeamId, tuple[int, int]]:
        """Tokens and nanodollars of all tenants' teams. For the gateway itself."""
        states = ((row["id"], json.loads(row["state"] or "{}")) for row in self._database.rows(_STATES))
        return {id: (state.get("tokens", 0), state.get("nanodollars", 0)) for id, state in states}

    def remove(self, tenant: TenantId, team: TeamId) -> None:
        """Removes the team with its runs, events and notes. A process that still works on it can no longer write."""
        with self._database.transaction():
            self._database.execute("DELETE FROM teams WHERE tenant_id = ? AND id = ?", tenant, team)
            self._database.execute("DELETE FROM team_runs WHERE team_id = ?", team)
            self._database.execute("DELETE FROM team_news WHERE team_id = ?", team)
            self._database.execute("DELETE FROM team_record WHERE team_id = ?", team)

    def of_all(self, team: TeamId) -> TeamRow:
        """A team of any tenant. For the platform itself. Raises UnknownEntryError."""
        row = self._database.row("SELECT * FROM teams WHERE id = ?", team)
        if row is None:
            raise UnknownEntryError("team", team)
        return _team(row)


def _team(row: DatabaseRow) -> TeamRow:
    return TeamRow(
        id=row["id"],
        tenant=row["tenant_id"],
        name=row["name"],
        created=row["created"],
        definition=bytes.fromhex(row["definition"]),
        state=row["state"],
        epoch=row["epoch"],
    )


RunState = Literal["waiting", "running", "done", "failed", "cancelled"]

MAX_RUNS_KEPT: Final = 200
"""Of one team; older runs that have ended are dropped. Each has up to half a mebibyte of work, a run that is
cancelled at once takes moments, and all tenants share a database.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """work, outcome: serialised messages, StartRunRequest and TeamRun. wanted: `cancel`, or empty.

    Times are seconds since the epoch; 0 for not yet.
    """

    team: TeamId
    number: int
    state: RunState
    work: bytes
    wanted: str
    outcome: bytes
    error: str
    created: float
    started: float
    ended: float


class TeamRunTable:
    """Runs by team; the caller checks who may see a team. Used from any thread."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(self, team: TeamId, work: bytes, key: str) -> RunRow:
        """The run of this key; inserts one if there is none. An empty key always inserts."""
        with self._database.transaction():
            sql = "SELECT number FROM team_runs WHERE team_id = ? AND request_key = ?"
            found = self._database.row(sql, team, key) if key else None
            if found is not None:
                return self.get(team, found["number"])
            row = self._database.row("SELECT MAX(number) AS newest FROM team_runs WHERE team_id = ?", team)
            number = 1 + int((row["newest"] if row is not None else 0) or 0)
            sql = (
                "INSERT INTO team_runs (team_id, number, request_key, work, state, created) "
                "VALUES (?, ?, ?, ?, 'waiting', ?)"
            )
            self._database.execute(sql, team, number, key or None, work.hex(), self._clock())
            sql = "DELETE FROM team_runs WHERE team_id = ? AND number <= ? AND state NOT IN ('waiting', 'running')"
            self._database.execute(sql, team, number - MAX_RUNS_KEPT)
        return self.get(team, number)

    def get(self, team: TeamId, number: int) -> RunRow:
        """number: 0 for the newest. Raises UnknownEntryError."""
        sql = (
            "SELECT * FROM team_runs WHERE team_id = ? AND (number = ? OR ? = 0) ORDER BY number DESC LIMIT 1"
        )
        row = self._database.row(sql, team, number, number)
        if row is None:
            raise UnknownEntryError("run", str(number))
        return _run(row)

    def of(self, team: TeamId, limit: int) -> list[RunRow]:
        """The newest first."""
        sql = "SELECT * FROM team_runs WHERE team_id = ? ORDER BY number DESC LIMIT ?"
        return [_run(row) for row in self._database.rows(sql, team, limit)]

    def open(self, team: TeamId) -> list[RunRow]:
        """Those that are not over, the oldest first."""
        sql = "SELECT * FROM team_runs WHERE team_id = ? AND state IN ('waiting', 'running') ORDER BY number"
        return [_run(row) for row in self._database.rows(sql, team)]

    def teams_at_work(self) -> list[TeamId]:
        """Teams of all tenants that have something to do. For the platform itself."""
        sql = "SELECT DISTINCT team_id FROM team_runs WHERE state IN ('waiting', 'running')"
        rows = self._database.rows(sql)
        return [TeamId(row["team_id"]) for row in rows]

    def cancel(self, team: TeamId, number: int) -> None:
        """Cancels a run: at once if it waits; otherwise its orchestrator is notified."""
        with self._database.transaction():
            sql = "UPDATE team_runs SET wanted = 'cancel' WHERE team_id = ? AND number = ? AND state = 'running'"
            self._database.execute(sql, team, number)
            sql = (
                "UPDATE team_runs SET state = 'cancelled', ended = ? "
                "WHERE team_id = ? AND number = ? AND state = 'waiting'"
            )
            self._database.execute(sql, self._clock(), team, number)

    def give_up(self, team: TeamId, reason: str) -> None:
        """Ends the run that processes work on as failed: the one under way, else the first that waits, which its
        processes have not begun before they ended. Followers get the event of that.
        """
        with self._database.transaction():
            if not (runs := self.open(team)):
                return
            number, now = runs[0].number, self._clock()
            sql = (
                "UPDATE team_runs SET state = 'failed', error = ?, ended = ? WHERE team_id = ? AND number = ?"
            )
            self._database.execute(sql, reason, now, team, number)
            self._database.execute("DELETE FROM team_record WHERE team_id = ?", team)
            news = TeamEventTable(self._database)
            last = news.kept(team)[1] + 1
            news.add(
                team,
                StoredTeamEvent(
                    number=last, at=now, run=number, agent="", place="", kind="failed", content=reason
                ),
            )


def _run(row: DatabaseRow) -> RunRow:
    return RunRow(
        team=row["team_id"],
        number=row["number"],
        state=row["state"],
        work=bytes.fromhex(row["work"]),
        wanted=row["wanted"],
        outcome=bytes.fromhex(row["outcome"]),
        error=row["error"],
        created=row["created"],
        started=row["started"],
        ended=row["ended"],
    )


MAX_EVENTS_KEPT: Final = 10_000
"""Of one team; older events are dropped."""

MAX_EVENT_CONTENT: Final = 64 * 2**10
"""Characters of one event; a longer one is cut."""

EVENTS_OF_A_PAGE: Final = 200

MODEL_CALL: Final = "model_call"
"""The kind of an event that only readers of accounts get: what a call of a model took, as a ModelCall in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTeamEvent:
    """at: seconds since the epoch. agent: empty for the run itself. place: of the task, in the team's record."""

    number: int
    at: float
    run: int
    agent: str
    place: str
    kind: str
    content: str


class TeamEventTable:
    """Events of all teams; the caller checks who may see a team. Used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def after(self, team: TeamId, number: int) -> list[StoredTeamEvent]:
        """A page of those with a higher number, in order."""
        sql = "SELECT * FROM team_news WHERE team_id = ? AND number > ? ORDER BY number LIMIT ?"
        return [_news(row) for row in self._database.rows(sql, team, number, EVENTS_OF_A_PAGE)]

    def kept(self, team: TeamId) -> tuple[int, int]:
        """The first and the newest number; zeros before there are any."""
        sql = "SELECT MIN(number) AS first, MAX(number) AS newest FROM team_news WHERE team_id = ?"
        row = self._database.row(sql, team)
        return (row["first"] or 0, row["newest"] or 0) if row is not None else (0, 0)

    def add(self, team: TeamId, news: StoredTeamEvent) -> None:
        """Inside the caller's transaction. Drops old events."""
        sql = (
            "INSERT INTO team_news (team_id, number, at, run, agent, place, kind, content) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        )
        values = (
            news.number,
            news.at,
            news.run,
            news.agent,
            news.place,
            news.kind,
            news.content[:MAX_EVENT_CONTENT],
        )
        self._database.execute(sql, team, *values)
        sql = "DELETE FROM team_news WHERE team_id = ? AND number <= ?"
        self._database.execute(sql, team, news.number - MAX_EVENTS_KEPT)

    def told(self, team: TeamId, run: int, agent: str, place: str, silent: str) -> int:
        """Number of events of an agent's task, without model calls and those of kind `silent`."""
        sql = (
            "SELECT COUNT(*) AS told FROM team_news WHERE team_id = ? AND run = ? AND agent = ? AND place = ? "
            "AND kind NOT IN (?, ?)"
        )
        row = self._database.row(sql, team, run, agent, place, silent, MODEL_CALL)
        return int(row["told"]) if row is not None else 0


def _news(row: DatabaseRow) -> StoredTeamEvent:
    return StoredTeamEvent(
        number=row["number"],
        at=row["at"],
        run=row["run"],
        agent=row["agent"],
        place=row["place"],
        kind=row["kind"],
        content=row["content"],
    )


class TeamWorkload:
    """See Workload."""

    kind: Final[Kind] = "team"
    can_make_room: Final = False
    """A task of agents cannot be paused."""

    def __init__(self, database: Database) -> None:
        self._teams = TeamTable(database)
        self._runs = TeamRunTable(database)
        self._news = TeamEventTable(database)

    @property
    def share(self) -> SlotLimits:
        return share_of(machine_memory(), tenants=2)

    def at_work(self) -> Sequence[str]:
        return self._runs.teams_at_work()

    def is_open(self, work: str) -> bool:
        return bool(self._runs.open(TeamId(work)))

    def tenant(self, work: str) -> TenantId:
        return self._teams.of_all(TeamId(work)).tenant

    def expects_more(self) -> bool:
        """Teams are made once, and work for long."""
        return False

    def progress(self, work: str) -> Hashable:
        team = TeamId(work)
        try:
            self._teams.of_all(team)
        except UnknownEntryError:
            return ()
        return (self._news.kept(team)[1], *(run.number for run in self._runs.open(team)))

    def stuck(self, work: str, reason: str) -> None:
        self._runs.give_up(TeamId(work), reason)
