"""What has happened in teams, numbered and kept for whoever follows. The only place with the SQL of news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote.gateway.database import Database
from cenote.gateway.session import Row
from cenote_security.ids import TeamId

MAX_KEPT: Final = 10_000
"""Of one team; older news are dropped."""

MAX_CONTENT: Final = 64 * 2**10
"""Characters of one; of a longer one the beginning is kept."""

PAGE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """at: seconds since the epoch. agent: empty for the run itself. place: of the task, in the team's record."""

    number: int
    at: float
    run: int
    agent: str
    place: str
    kind: str
    content: str


class NewsTable:
    """Of all teams; who may see a team is decided before. Used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def after(self, team: TeamId, number: int) -> list[News]:
        """A page of those with a higher number, in order."""
        sql = "SELECT * FROM team_news WHERE team_id = ? AND number > ? ORDER BY number LIMIT ?"
        return [_news(row) for row in self._database.rows(sql, team, number, PAGE)]

    def kept(self, team: TeamId) -> tuple[int, int]:
        """The first and the newest number; zeros before there are any."""
        sql = "SELECT MIN(number) AS first, MAX(number) AS newest FROM team_news WHERE team_id = ?"
        row = self._database.row(sql, team)
        return (row["first"] or 0, row["newest"] or 0) if row is not None else (0, 0)

    def add(self, team: TeamId, news: News) -> None:
        """In a transaction of its caller's. Drops what is too old."""
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
            news.content[:MAX_CONTENT],
        )
        self._database.execute(sql, team, *values)
        sql = "DELETE FROM team_news WHERE team_id = ? AND number <= ?"
        self._database.execute(sql, team, news.number - MAX_KEPT)

    def told(self, team: TeamId, run: int, agent: str, place: str, silent: str) -> int:
        """How many of an agent's task are there, those of kind `silent` left out."""
        sql = (
            "SELECT COUNT(*) AS told FROM team_news WHERE team_id = ? AND run = ? AND agent = ? AND place = ? "
            "AND kind <> ?"
        )
        row = self._database.row(sql, team, run, agent, place, silent)
        return int(row["told"]) if row is not None else 0


def _news(row: Row) -> News:
    return News(
        number=row["number"],
        at=row["at"],
        run=row["run"],
        agent=row["agent"],
        place=row["place"],
        kind=row["kind"],
        content=row["content"],
    )
