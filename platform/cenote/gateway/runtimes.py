"""Which runtimes a tenant has, by name and by id. The only place with their SQL.

Every question names the tenant and is one look-up in an index that starts with it, so a runtime of somebody else is
not refused but not found: same words, same work.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cenote.gateway.database import Database, Row
from cenote.gateway.names import QualifiedName, check_name
from cenote.gateway.principal import Principal
from cenote_security.errors import EntryExistsError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId, new_runtime_id

_NOBODY: Final = TenantId("")
"""Has no runtimes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """created: seconds since the epoch."""

    id: RuntimeId
    tenant: TenantId
    name: str
    created: float


class Runtimes:
    """The runtimes of all tenants, seen by one tenant at a time."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(self, tenant: TenantId, name: str) -> RuntimeRecord:
        """Raises UsageError for a bad name, EntryExistsError when this tenant has one of that name."""
        record = RuntimeRecord(
            id=new_runtime_id(), tenant=tenant, name=check_name("runtime", name), created=self._clock()
        )
        sql = "INSERT INTO runtimes (id, tenant_id, name, created) VALUES (?, ?, ?, ?)"
        try:
            self._database.execute(sql, record.id, tenant, name, record.created)
        except sqlite3.IntegrityError:
            raise EntryExistsError("runtime", name) from None
        return record

    def find(self, principal: Principal, text: str) -> RuntimeRecord:
        """What a client means by `runtime` or `tenant/runtime`. Raises UsageError for bad names, UnknownRuntimeError.

        With another tenant's name in front nothing is found, by the same look-up, whether that tenant exists or not.
        """
        name = QualifiedName.parse(text, tenant=principal.tenant_name)
        own = name.tenant == principal.tenant_name
        return self.by_name(principal.tenant if own else _NOBODY, name.runtime, asked=text)

    def by_name(self, tenant: TenantId, name: str, *, asked: str = "") -> RuntimeRecord:
        """asked: what the error calls it, if not by its name. Raises UnknownRuntimeError."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND name = ?"
        return _record(self._database.row(sql, tenant, name), asked or name)

    def by_id(self, tenant: TenantId, runtime: RuntimeId) -> RuntimeRecord:
        """Raises UnknownRuntimeError."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND id = ?"
        return _record(self._database.row(sql, tenant, runtime), runtime)

    def of(self, tenant: TenantId) -> list[RuntimeRecord]:
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? ORDER BY name"
        return [_record(row, "") for row in self._database.rows(sql, tenant)]

    def remove(self, tenant: TenantId, runtime: RuntimeId) -> None:
        """Raises UnknownRuntimeError."""
        if not self._database.execute("DELETE FROM runtimes WHERE tenant_id = ? AND id = ?", tenant, runtime):
            raise UnknownRuntimeError(runtime)


def _record(row: Row | None, asked: str) -> RuntimeRecord:
    if row is None:
        raise UnknownRuntimeError(asked)
    return RuntimeRecord(id=row["id"], tenant=row["tenant_id"], name=row["name"], created=row["created"])
