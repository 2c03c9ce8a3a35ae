"""Which teams a tenant has, by name and by id. The only place with their SQL.

Every question of a client names the tenant first, as for runtimes: what others have is not found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cenote.gateway.database import NO_LIMIT, Database
from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.names import check_name
from cenote.gateway.session import Row
from cenote_security.errors import EntryExistsError, UnknownEntryError
from cenote_security.ids import TeamId, TenantId, new_team_id

_STATES: Final = "SELECT id, state FROM teams"

ID_PREFIX: Final = "tm_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRow:
    """definition: the serialised message. state: a TeamState's JSON; empty before the first run.

    epoch: how many processes have worked on it. created: seconds since the epoch of time.
    """

    id: TeamId
    tenant: TenantId
    name: str
    created: float
    definition: bytes
    state: str
    epoch: int


class Teams:
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
        """Other members, from the next run on."""
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
        """By name, those behind `after`."""
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
        """With its runs, its news and its record: whoever still works on it finds nothing to write to."""
        with self._database.transaction():
            self._database.execute("DELETE FROM teams WHERE tenant_id = ? AND id = ?", tenant, team)
            self._database.execute("DELETE FROM team_runs WHERE team_id = ?", team)
            self._database.execute("DELETE FROM team_news WHERE team_id = ?", team)
            self._database.execute("DELETE FROM team_record WHERE team_id = ?", team)

    def of_all(self, team: TeamId) -> TeamRow:
        """Whosever it is. For the platform itself. Raises UnknownEntryError."""
        row = self._database.row("SELECT * FROM teams WHERE id = ?", team)
        if row is None:
            raise UnknownEntryError("team", team)
        return _team(row)


def _team(row: Row) -> TeamRow:
    return TeamRow(
        id=row["id"],
        tenant=row["tenant_id"],
        name=row["name"],
        created=row["created"],
        definition=bytes.fromhex(row["definition"]),
        state=row["state"],
        epoch=row["epoch"],
    )
