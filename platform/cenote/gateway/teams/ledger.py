"""The store, as seen by a team's orchestrator: its runs, its notes, its events.

Two orchestrators of one team may exist for a moment, while one that lost its connection is replaced. Only the later
one can write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cenote.gateway.store.database import Database
from cenote.gateway.teams.tables import (
    RunRow,
    RunState,
    StoredTeamEvent,
    TeamEventTable,
    TeamRow,
    TeamRunTable,
    TeamTable,
)
from cenote.gateway.work.workload import Fence, SupersededError
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import TeamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One action of an agent at a place. kind, data: defined by the reader."""

    agent: str
    place: str
    number: int
    kind: str
    data: str


class TeamLedger:
    """For one team. Each write is on the disk when it returns. Raises SupersededError, DatabaseUnavailableError."""

    def __init__(self, database: Database, team: TeamId, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._team = team
        self._clock = clock
        self._teams = TeamTable(database)
        self._runs = TeamRunTable(database)
        self._news = TeamEventTable(database)
        self._writing = Fence(database, "team", team).writing

    @property
    def team(self) -> TeamRow:
        try:
            return self._teams.of_all(self._team)
        except UnknownEntryError:
            raise SupersededError from None

    # -- runs --

    def next_run(self) -> RunRow | None:
        """The run to work on: the one under way, else the first that waits."""
        return next(iter(self._runs.open(self._team)), None)

    def is_cancelled(self, number: int) -> bool:
        try:
            return self._runs.get(self._team, number).wanted == "cancel"
        except UnknownEntryError:
            raise SupersededError from None

    def begin_run(self, number: int) -> None:
        with self._writing():
            sql = "UPDATE team_runs SET state = 'running', started = ? WHERE team_id = ? AND number = ?"
            self._database.execute(sql, self._clock(), self._team, number)
            self._tell(number, "started")

    def end_run(self, number: int, state: RunState, *, outcome: bytes = b"", error: str = "") -> None:
        """Ends the run and drops its notes."""
        with self._writing():
            sql = (
                "UPDATE team_runs SET state = ?, outcome = ?, error = ?, ended = ? "
                "WHERE team_id = ? AND number = ?"
            )
            self._database.execute(sql, state, outcome.hex(), error, self._clock(), self._team, number)
            self._database.execute("DELETE FROM team_record WHERE team_id = ?", self._team)
            self._tell(number, state, error)

    def save_state(self, state: str) -> None:
        with self._writing():
            self._database.execute("UPDATE teams SET state = ? WHERE id = ?", state, self._team)

    # -- notes --

    def notes(self) -> list[Note]:
        """Notes of the run under way, in the order of writing."""
        sql = "SELECT * FROM team_record WHERE team_id = ? ORDER BY position"
        return [
            Note(
                agent=row["agent"],
                place=row["place"],
                number=row["number"],
                kind=row["kind"],
                data=row["data"],
            )
            for row in self._database.rows(sql, self._team)
        ]

    def note(self, note: Note, before: Iterable[StoredTeamEvent] = ()) -> None:
        """before: events that come first, in one transaction with the note."""
        with self._writing():
            self._add(before)
            row = self._database.row(
                "SELECT MAX(position) AS last FROM team_record WHERE team_id = ?", self._team
            )
            position = 1 + int((row["last"] if row is not None else 0) or 0)
            sql = (
                "INSERT INTO team_record (team_id, position, agent, place, number, kind, data) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)"
            )
            values = (note.agent, note.place, note.number, note.kind, note.data)
            self._database.execute(sql, self._team, position, *values)

    def forget_notes(self) -> None:
        """Drops the notes: the namespaces that they describe no longer exist."""
        with self._writing():
            self._database.execute("DELETE FROM team_record WHERE team_id = ?", self._team)

    # -- events --

    def tell(self, news: Iterable[StoredTeamEvent]) -> None:
        """Appends events and assigns their numbers."""
        with self._writing():
            self._add(news)

    def tell_of_run(self, number: int, kind: str, content: str = "") -> None:
        with self._writing():
            self._tell(number, kind, content)

    def told(self, run: int, agent: str, place: str, silent: str) -> int:
        """See TeamEventTable."""
        return self._news.told(self._team, run, agent, place, silent)

    def _tell(self, number: int, kind: str, content: str = "") -> None:
        news = StoredTeamEvent(
            number=0, at=self._clock(), run=number, agent="", place="", kind=kind, content=content
        )
        self._add([news])

    def _add(self, news: Iterable[StoredTeamEvent]) -> None:
        newest = self._news.kept(self._team)[1]
        for number, each in enumerate(news, newest + 1):
            self._news.add(
                self._team,
                StoredTeamEvent(
                    number=number,
                    at=each.at,
                    run=each.run,
                    agent=each.agent,
                    place=each.place,
                    kind=each.kind,
                    content=each.content,
                ),
            )
