"""The runtimes of each tenant, by name and by id. The only place with their SQL.

Every query names the tenant and is one look-up in an index that starts with it. So another tenant's runtime is not
refused but not found: same error, same work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.store.database import NO_LIMIT, Database
from cenote.gateway.store.session import DatabaseRow
from cenote.gateway.values.names import QualifiedName, check_name
from cenote.gateway.values.principal import Principal
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import EntryExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, TenantId, new_runtime_id
from cenote_security.options import definitions
from cenote_worker.checkpoints.retention import NOTHING_STORED, Retention
from cenote_worker.runtime.state.branches import ForkPoint

_RETENTION: Final = definitions(Retention)
"""Each has a column of its name; booleans are numbers there."""

_NOWHERE: Final = ForkPoint(history="", step=0)

_NOBODY: Final = TenantId("")
"""A tenant without runtimes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What a branch was forked from. fork, place: the fork call, and the index among its branches.

    point: where the parent was; empty for a branch that is not made yet.
    """

    runtime: RuntimeId
    name: str
    fork: str
    place: int = 0
    point: ForkPoint = _NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """created: seconds since the epoch. policy: the serialised message.

    lease: seconds that it outlives its last client; 0 for until it is deleted. made: whether a node has it, or had.
    parent: of a branch.
    """

    id: RuntimeId
    tenant: TenantId
    name: str
    created: float
    policy: bytes = field(default=b"", repr=False)
    lease: float = 0.0
    made: bool = False
    retention: Retention = NOTHING_STORED
    parent: Parent | None = None

    @property
    def durable(self) -> bool:
        return self.retention.durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The number of recorded runtimes. durable: of those that were made."""

    starting: int
    made: int
    durable: int


_SEALED: Final = "sealed:"
_NONCE_BYTES: Final = 12


class Runtimes:
    """The runtimes of all tenants, seen by one tenant at a time."""

    def __init__(self, database: Database, key: bytes, clock: Callable[[], float] = time.time) -> None:
        """key: of 32 bytes, encrypts policies with credentials."""
        self._database = database
        self._sealed = AESGCM(key)
        self._clock = clock

    def add(
        self,
        tenant: TenantId,
        name: str | None = None,
        *,
        policy: bytes = b"",
        lease: float = 0.0,
        key: str = "",
        retention: Retention = NOTHING_STORED,
        parent: Parent | None = None,
    ) -> RuntimeRecord:
        """name: None for its id. key: of the request, for `by_request`. parent: of a branch.

        Raises UsageError for a bad name, EntryExistsError when this tenant has one of that name.
        """
        runtime = new_runtime_id()
        record = RuntimeRecord(
            id=runtime,
            tenant=tenant,
            name=check_name("runtime", runtime if name is None else name),
            created=self._clock(),
            policy=policy,
            lease=lease,
            retention=retention,
            parent=parent,
        )
        born = (parent.runtime, parent.name, parent.fork, parent.place) if parent else ("", "", None, 0)
        values = {
            "id": runtime,
            "tenant_id": tenant,
            "name": record.name,
            "created": record.created,
            "policy": self._stored(tenant, policy),
            "lease": lease,
            "request_key": key or None,
            **{known.name: +getattr(retention, known.name) for known in _RETENTION},
            **dict(zip(("parent", "parent_name", "fork_key", "fork_place"), born, strict=True)),
        }
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        sql = f"INSERT INTO runtimes ({names}) VALUES ({marks})"  # noqa: S608  (names of columns, from here)
        try:
            self._database.execute(sql, *values.values())
        except DuplicateRowError:
            raise EntryExistsError("runtime", record.name) from None
        return record

    def made(self, tenant: TenantId, runtime: RuntimeId) -> None:
        """A node has it now."""
        sql = "UPDATE runtimes SET made = ? WHERE tenant_id = ? AND id = ?"
        self._database.execute(sql, self._clock(), tenant, runtime)

    def forked(self, tenant: TenantId, fork: str, point: ForkPoint) -> None:
        """A node has all branches of this fork now."""
        sql = (
            "UPDATE runtimes SET made = ?, parent_step = ?, parent_history = ? "
            "WHERE tenant_id = ? AND fork_key = ?"
        )
        self._database.execute(sql, self._clock(), point.step, point.history, tenant, fork)

    def by_fork(self, tenant: TenantId, fork: str) -> list[RuntimeRecord]:
        """The branches of a fork, in their order."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND fork_key = ? ORDER BY fork_place"
        return [self._record(row, "") for row in self._database.rows(sql, tenant, fork)]

    def find(self, principal: Principal, text: str) -> RuntimeRecord:
        """Resolves `runtime` or `tenant/runtime`. Raises UsageError for bad names, UnknownRuntimeError.

        Another tenant's name finds nothing, by the same look-up, whether that tenant exists or not.
        """
        name = QualifiedName.parse(text, tenant=principal.tenant_name)
        own = name.tenant == principal.tenant_name
        return self.by_name(principal.tenant if own else _NOBODY, name.runtime, asked=text)

    def by_name(self, tenant: TenantId, name: str, *, asked: str = "") -> RuntimeRecord:
        """asked: the name in the error, by default `name`. Raises UnknownRuntimeError."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND name = ?"
        return self._record(self._database.row(sql, tenant, name), asked or name)

    def by_id(self, tenant: TenantId, runtime: RuntimeId) -> RuntimeRecord:
        """Raises UnknownRuntimeError."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND id = ?"
        return self._record(self._database.row(sql, tenant, runtime), runtime)

    def name_of_any(self, runtime: RuntimeId) -> str:
        """The name of any tenant's runtime. For the gateway itself. Raises UnknownRuntimeError."""
        return self._record(self._database.row("SELECT * FROM runtimes WHERE id = ?", runtime), runtime).name

    def by_request(self, tenant: TenantId, key: str) -> RuntimeRecord | None:
        """The runtime that a request with this key has made before, if any."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND request_key = ?"
        row = self._database.row(sql, tenant, key)
        return None if row is None else self._record(row, "")

    def of(self, tenant: TenantId, *, after: str = "", limit: int = NO_LIMIT) -> list[RuntimeRecord]:
        """By name, those after `after`."""
        sql = "SELECT * FROM runtimes WHERE tenant_id = ? AND name > ? ORDER BY name LIMIT ?"
        return [self._record(row, "") for row in self._database.rows(sql, tenant, after, limit)]

    def unmade(self) -> list[RuntimeRecord]:
        """Runtimes of all tenants that no node is known to have. For the gateway itself."""
        return [
            self._record(row, "") for row in self._database.rows("SELECT * FROM runtimes WHERE made IS NULL")
        ]

    def leased(self) -> list[RuntimeRecord]:
        """Runtimes of all tenants that have a lease. For the gateway itself."""
        sql = "SELECT * FROM runtimes WHERE lease > 0 AND made IS NOT NULL"
        return [self._record(row, "") for row in self._database.rows(sql)]

    def lasting(self, after: str, limit: int) -> list[RuntimeRecord]:
        """Runtimes of all tenants that have no lease and end with their machine. For the gateway itself.

        By id, those after `after`.
        """
        sql = (
            "SELECT * FROM runtimes WHERE lease = 0 AND durable = 0 AND made IS NOT NULL AND id > ? "
            "ORDER BY id LIMIT ?"
        )
        return [self._record(row, "") for row in self._database.rows(sql, after, limit)]

    def ids(self) -> list[RuntimeId]:
        """Ids of all tenants' runtimes. For the gateway itself."""
        return [row["id"] for row in self._database.rows("SELECT id FROM runtimes")]

    def numbers(self) -> Numbers:
        """Numbers of all tenants' runtimes. For the gateway itself."""
        sql = (
            "SELECT COUNT(*) AS entries, COUNT(made) AS made, "
            "SUM(CASE WHEN made IS NOT NULL AND durable = 1 THEN 1 ELSE 0 END) AS durable FROM runtimes"
        )
        row = self._database.row(sql)
        assert row is not None, "a count is one row"
        made = int(row["made"])
        return Numbers(starting=int(row["entries"]) - made, made=made, durable=int(row["durable"] or 0))

    def disown(self, tenant: TenantId, runtime: RuntimeId) -> None:
        """Frees the name and the request key of a runtime that was never made, before it is removed."""
        sql = "UPDATE runtimes SET name = id, request_key = NULL, fork_key = NULL WHERE tenant_id = ? AND id = ?"
        self._database.execute(sql, tenant, runtime)

    def remove(self, tenant: TenantId, runtime: RuntimeId) -> None:
        """Raises UnknownRuntimeError."""
        if not self._database.execute("DELETE FROM runtimes WHERE tenant_id = ? AND id = ?", tenant, runtime):
            raise UnknownRuntimeError(runtime)

    def _record(self, row: DatabaseRow | None, asked: str) -> RuntimeRecord:
        if row is None:
            raise UnknownRuntimeError(asked)
        return RuntimeRecord(
            id=row["id"],
            tenant=row["tenant_id"],
            name=row["name"],
            created=row["created"],
            policy=self._policy(row),
            lease=row["lease"],
            made=row["made"] is not None,
            retention=Retention(**{known.name: type(known.default)(row[known.name]) for known in _RETENTION}),
            parent=_parent(row) if row["parent"] else None,
        )

    def _stored(self, tenant: TenantId, policy: bytes) -> str:
        """The policy as stored in the database, which may be on another machine: credentials are encrypted."""
        if not runtime_pb2.Policy.FromString(policy).network.credentials:
            return policy.hex()
        nonce = os.urandom(_NONCE_BYTES)
        return _SEALED + (nonce + self._sealed.encrypt(nonce, policy, tenant.encode())).hex()

    def _policy(self, row: DatabaseRow) -> bytes:
        stored: str = row["policy"]
        if not stored.startswith(_SEALED):
            return bytes.fromhex(stored)
        content = bytes.fromhex(stored.removeprefix(_SEALED))
        nonce, sealed = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        try:
            return self._sealed.decrypt(nonce, sealed, row["tenant_id"].encode())
        except InvalidTag:
            raise UnavailableError(
                f"the policy of {row['name']!r} has credentials, sealed with another master key than this platform "
                "has; bring back the master key of its state folder"
            ) from None


def _parent(row: DatabaseRow) -> Parent:
    return Parent(
        runtime=row["parent"],
        name=row["parent_name"],
        fork=row["fork_key"],
        place=row["fork_place"],
        point=ForkPoint(history=row["parent_history"], step=row["parent_step"]),
    )
