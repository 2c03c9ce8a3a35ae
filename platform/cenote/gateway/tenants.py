"""Tenants: who has tokens, runtimes and quotas, and sees nothing of the others. The only place with their SQL."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from cenote.gateway.database import Database
from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.names import check_name
from cenote.gateway.session import Row
from cenote_security.errors import EntryExistsError, UnknownEntryError, UsageError
from cenote_security.ids import TenantId, new_tenant_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """weight: its share of a full machine, in relation to the others'. closed: None while it is open.

    Times are seconds since the epoch.
    """

    id: TenantId
    name: str
    weight: float = 1.0
    created: float = 0.0
    closed: float | None = None


class Tenants:
    """What the operator does with tenants, on the gateway's machine. No token reaches this."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def create(self, name: str, *, weight: float = 1.0) -> Tenant:
        """Raises UsageError for a bad name or weight, EntryExistsError for a taken name, closed tenants' included."""
        if not 0.001 <= weight <= 1000 or math.isnan(weight):
            raise UsageError(f"a weight is from 0.001 to 1000, not {weight!r}")
        tenant = Tenant(
            id=new_tenant_id(), name=check_name("tenant", name), weight=weight, created=self._clock()
        )
        sql = "INSERT INTO tenants (id, name, weight, created) VALUES (?, ?, ?, ?)"
        try:
            self._database.execute(sql, tenant.id, tenant.name, tenant.weight, tenant.created)
        except DuplicateRowError:
            raise EntryExistsError("tenant", name) from None
        return tenant

    def get(self, name: str) -> Tenant:
        """Raises UnknownEntryError."""
        row = self._database.row("SELECT * FROM tenants WHERE name = ?", name)
        if row is None:
            raise UnknownEntryError("tenant", name)
        return _tenant(row)

    def all(self) -> list[Tenant]:
        return [_tenant(row) for row in self._database.rows("SELECT * FROM tenants ORDER BY name")]

    def close(self, name: str) -> None:
        """From now on none of its tokens is good. Its name stays taken, so that nobody inherits it.

        Raises UnknownEntryError, also for a tenant that is closed already.
        """
        sql = "UPDATE tenants SET closed = ? WHERE name = ? AND closed IS NULL"
        if not self._database.execute(sql, self._clock(), name):
            raise UnknownEntryError("tenant", name)


def _tenant(row: Row) -> Tenant:
    return Tenant(
        id=row["id"],
        name=row["name"],
        weight=row["weight"],
        created=row["created"],
        closed=row["closed"],
    )
