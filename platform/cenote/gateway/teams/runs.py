"""What teams were set to do, and what became of it. The only place with the SQL of runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cenote.gateway.database import Database
from cenote.gateway.session import Row
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import TeamId

RunState = Literal["waiting", "running", "done", "failed", "cancelled"]
STATES: Final[tuple[RunState, ...]] = get_args(RunState)

MAX_KEPT: Final = 200
"""Of one team, with half a mebibyte each of what it was set to do; older ones that have ended are dropped. A run
takes moments where it is cancelled at once, and all tenants' are in one database."""


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


class Runs:
    """By team; who may see a team is decided before. Used from any thread."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(self, team: TeamId, work: bytes, key: str) -> RunRow:
        """The run of this key, made if none that is kept has it. An empty key is nobody's."""
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
            self._database.execute(sql, team, number - MAX_KEPT)
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
        """Those that have not come to their end, the oldest first."""
        sql = "SELECT * FROM team_runs WHERE team_id = ? AND state IN ('waiting', 'running') ORDER BY number"
        return [_run(row) for row in self._database.rows(sql, team)]

    def teams_at_work(self) -> list[TeamId]:
        """All tenants': those that have something to do. For the platform itself."""
        sql = "SELECT DISTINCT team_id FROM team_runs WHERE state IN ('waiting', 'running')"
        rows = self._database.rows(sql)
        return [TeamId(row["team_id"]) for row in rows]

    def cancel(self, team: TeamId, number: int) -> None:
        """One that waits is over at once; of one that is worked on, its orchestrator hears."""
        with self._database.transaction():
            sql = "UPDATE team_runs SET wanted = 'cancel' WHERE team_id = ? AND number = ? AND state = 'running'"
            self._database.execute(sql, team, number)
            sql = (
                "UPDATE team_runs SET state = 'cancelled', ended = ? "
                "WHERE team_id = ? AND number = ? AND state = 'waiting'"
            )
            self._database.execute(sql, self._clock(), team, number)

    def give_up(self, team: TeamId, reason: str) -> None:
        """Nobody can work on what the team is working on."""
        sql = "UPDATE team_runs SET state = 'failed', error = ?, ended = ? WHERE team_id = ? AND state = 'running'"
        self._database.execute(sql, reason, self._clock(), team)


def _run(row: Row) -> RunRow:
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
