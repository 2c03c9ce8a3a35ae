"""The table of tenants' environments. The only place with its SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Final, Literal, Self

from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.store.database import NO_LIMIT, Database
from cenote.gateway.store.session import DatabaseRow
from cenote_security.errors import EntryExistsError, UnknownEntryError
from cenote_security.ids import EnvironmentId, TenantId, new_environment_id
from cenote_worker.environments.packages import PackageLock
from cenote_worker.environments.store import BuiltEnvironment

EnvironmentState = Literal["building", "ready", "failed", "leaving", "removed"]

_LISTED: Final = "state NOT IN ('leaving', 'removed')"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDefinition:
    """What a tenant asks for: requirements, as pip takes them, or a lock."""

    requirements: tuple[str, ...] = ()
    lock: PackageLock | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        told = json.loads(text)
        return cls(
            requirements=tuple(told["requirements"]), lock=told["lock"] and PackageLock(**told["lock"])
        )

    @property
    def own_name(self) -> str:
        """What it is called where its tenant gives no name."""
        return f"env-{sha256(self.to_json().encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """token: id of the one that it was asked for with. digest, lock, packages, size: once it is ready. created: in
    seconds since the epoch. error: why it has failed.
    """

    id: EnvironmentId
    tenant: TenantId
    name: str
    definition: EnvironmentDefinition = field(repr=False)
    token: str
    state: EnvironmentState
    created: float
    digest: str = ""
    lock: PackageLock | None = field(default=None, repr=False)
    packages: tuple[str, ...] = ()
    size: int = 0
    error: str = ""


class EnvironmentTable:
    """The environments of all tenants, seen by one tenant at a time."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(
        self, tenant: TenantId, name: str, definition: EnvironmentDefinition, token: str
    ) -> EnvironmentRow:
        """One to be built. Raises EntryExistsError when this tenant has one of that name."""
        sql = (
            "INSERT INTO environments (tenant_id, id, name, definition, token, state, created) "
            "VALUES (?, ?, ?, ?, ?, 'building', ?)"
        )
        values = (tenant, new_environment_id(), name, definition.to_json(), token, self._clock())
        try:
            self._database.execute(sql, *values)
        except DuplicateRowError:
            raise EntryExistsError("environment", name) from None
        return self.find(tenant, name)

    def find(self, tenant: TenantId, name: str) -> EnvironmentRow:
        """Raises UnknownEntryError."""
        sql = f"SELECT * FROM environments WHERE tenant_id = ? AND name = ? AND {_LISTED}"  # noqa: S608  (a constant)
        row = self._database.row(sql, tenant, name)
        if row is None:
            raise UnknownEntryError("environment", name)
        return _environment(row)

    def of(self, tenant: TenantId, *, after: str = "", limit: int = NO_LIMIT) -> list[EnvironmentRow]:
        """By name, those after `after`."""
        sql = (
            f"SELECT * FROM environments WHERE tenant_id = ? AND name > ? AND {_LISTED} "  # noqa: S608  (a constant)
            "ORDER BY name LIMIT ?"
        )
        return [_environment(row) for row in self._database.rows(sql, tenant, after, limit)]

    def digests(self, tenant: TenantId) -> Mapping[str, str]:
        """By name; empty for one that is not ready."""
        sql = f"SELECT name, digest FROM environments WHERE tenant_id = ? AND {_LISTED}"  # noqa: S608  (a constant)
        return {row["name"]: row["digest"] for row in self._database.rows(sql, tenant)}

    # -- its life --

    def begin_again(self, row: EnvironmentRow) -> None:
        """One that has failed is to be built."""
        sql = "UPDATE environments SET state = 'building', error = '' WHERE tenant_id = ? AND id = ?"
        self._database.execute(sql, row.tenant, row.id)

    def built(self, row: EnvironmentRow, built: BuiltEnvironment, lock: PackageLock) -> bool:
        """False where it was removed meanwhile."""
        facts = json.dumps({"lock": asdict(lock), "packages": built.packages})
        sql = (
            "UPDATE environments SET state = 'ready', digest = ?, facts = ?, size = ? "
            "WHERE tenant_id = ? AND id = ? AND state = 'building'"
        )
        return bool(self._database.execute(sql, built.digest, facts, built.size, row.tenant, row.id))

    def failed(self, row: EnvironmentRow, error: str) -> None:
        sql = (
            "UPDATE environments SET state = 'failed', error = ? "
            "WHERE tenant_id = ? AND id = ? AND state = 'building'"
        )
        self._database.execute(sql, error, row.tenant, row.id)

    def remove(self, row: EnvironmentRow) -> None:
        """Frees its name. The row stays until `forget`, for machines that still have the files or build them."""
        sql = "UPDATE environments SET state = ?, name = id WHERE tenant_id = ? AND id = ?"
        state: EnvironmentState = "leaving" if row.state == "building" else "removed"
        self._database.execute(sql, state, row.tenant, row.id)

    def leave(self, row: EnvironmentRow, digest: str) -> None:
        """Notes files on machines that no tenant has: they are to be removed."""
        sql = (
            "INSERT INTO environments (tenant_id, id, name, definition, token, state, digest, created) "
            "VALUES (?, ?, ?, ?, ?, 'removed', ?, ?)"
        )
        left = new_environment_id()
        self._database.execute(
            sql, row.tenant, left, left, row.definition.to_json(), row.token, digest, self._clock()
        )

    def forget(self, row: EnvironmentRow) -> None:
        self._database.execute("DELETE FROM environments WHERE tenant_id = ? AND id = ?", row.tenant, row.id)

    # -- for the platform itself --

    def in_state(self, state: EnvironmentState) -> Sequence[EnvironmentRow]:
        """All tenants', the oldest first."""
        sql = "SELECT * FROM environments WHERE state = ? ORDER BY created, id"
        return [_environment(row) for row in self._database.rows(sql, state)]

    def ids(self) -> list[EnvironmentId]:
        return [row["id"] for row in self._database.rows("SELECT id FROM environments")]

    def of_all(self, environment: EnvironmentId) -> EnvironmentRow:
        """Of any tenant. Raises UnknownEntryError."""
        row = self._database.row("SELECT * FROM environments WHERE id = ?", environment)
        if row is None:
            raise UnknownEntryError("environment", environment)
        return _environment(row)


def _environment(row: DatabaseRow) -> EnvironmentRow:
    facts = json.loads(row["facts"] or "{}")
    return EnvironmentRow(
        id=row["id"],
        tenant=row["tenant_id"],
        name=row["name"],
        definition=EnvironmentDefinition.from_json(row["definition"]),
        token=row["token"],
        state=row["state"],
        created=row["created"],
        digest=row["digest"],
        lock=PackageLock(**facts["lock"]) if facts else None,
        packages=tuple(facts.get("packages", ())),
        size=int(row["size"]),
        error=row["error"],
    )
