"""Tenants and their tokens: issued, checked, rotated, revoked. The only place with their SQL.

A tenant has tokens, runtimes and quotas, and sees nothing of other tenants.
"""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.store.database import Database
from cenote.gateway.store.session import DatabaseRow
from cenote.gateway.values.names import check_name
from cenote.gateway.values.principal import Principal
from cenote_security.auth.tokens import ORDINARY_SCOPES, SECRET_BYTES, BearerToken, Scope, parse_scopes
from cenote_security.errors import EntryExistsError, NotAuthenticatedError, UnknownEntryError, UsageError
from cenote_security.ids import TenantId, TokenId, new_tenant_id, new_token_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """weight: its share of a full machine, relative to the others. closed: None while it is open.

    Times are seconds since the epoch.
    """

    id: TenantId
    name: str
    weight: float = 1.0
    created: float = 0.0
    closed: float | None = None


class Tenants:
    """The operator's actions on tenants, on the gateway's machine. Not reachable with a token."""

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
        """Invalidates all of its tokens. Its name stays taken, so that no other tenant inherits it.

        Raises UnknownEntryError, also for a tenant that is closed already.
        """
        sql = "UPDATE tenants SET closed = ? WHERE name = ? AND closed IS NULL"
        if not self._database.execute(sql, self._clock(), name):
            raise UnknownEntryError("tenant", name)


def _tenant(row: DatabaseRow) -> Tenant:
    return Tenant(
        id=row["id"],
        name=row["name"],
        weight=row["weight"],
        created=row["created"],
        closed=row["closed"],
    )


DEFAULT_GRACE: Final = 24 * 3600.0
"""Seconds that a rotated token stays valid: time to deliver the new one to its users."""

_MAX_NOTE: Final = 200
_STRANGER: Final = BearerToken.of(TokenId("0" * 32), bytes(SECRET_BYTES))
_NO_DIGEST: Final = "0" * 64
"""The digest of no token, as far as is known about SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What may be shown of a token. Times are seconds since the epoch; None means never.

    note: its purpose, in its owner's words. successor: the token that a rotation made in its place.
    """

    id: TokenId
    tenant: TenantId
    scopes: frozenset[Scope]
    note: str
    created: float
    expires: float | None
    revoked: float | None
    successor: TokenId | None


class Tokens:
    """All methods but `authenticate` take a tenant, and reach only that tenant's tokens."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def issue(
        self,
        tenant: TenantId,
        scopes: Iterable[str] = ORDINARY_SCOPES,
        *,
        lifetime: float | None = None,
        note: str = "",
    ) -> BearerToken:
        """Issues a new token. Its text is only in the return value, and is not stored.

        lifetime: seconds; None is forever. Raises UsageError for unknown scopes, a bad lifetime, a long note.
        """
        if lifetime is not None and not lifetime > 0:
            raise UsageError(f"the lifetime of a token is a positive number of seconds, not {lifetime!r}")
        if len(note) > _MAX_NOTE:
            raise UsageError(f"a note has up to {_MAX_NOTE} characters")
        token = BearerToken.of(new_token_id(), secrets.token_bytes(SECRET_BYTES))
        now = self._clock()
        self._insert(
            tenant, token, parse_scopes(scopes), note, now, None if lifetime is None else now + lifetime
        )
        return token

    def authenticate(self, text: str) -> Principal:
        """The principal of this token. Raises NotAuthenticatedError.

        Whatever is wrong, there is one look-up, one hash, one comparison in constant time and one answer; a malformed
        token is looked up as an unknown one. A known id with a wrong secret may take some microseconds more than an
        unknown one: such a caller knows 128 random bits already, and learns nothing of the 256.
        """
        token = BearerToken.parse(text) or _STRANGER
        row = self._database.row(
            "SELECT tokens.id, tokens.tenant_id, tenants.name, tenants.weight, tenants.closed, digest, scopes, "
            "expires, revoked FROM tokens JOIN tenants ON tenants.id = tokens.tenant_id WHERE tokens.id = ?",
            token.id,
        )
        if not hmac.compare_digest(row["digest"] if row else _NO_DIGEST, token.digest()) or row is None:
            raise NotAuthenticatedError("this is no token of this platform; check that it is whole")
        if problem := _expiry(row, self._clock()):
            raise NotAuthenticatedError(problem)
        return _principal(row)

    def rotate(self, tenant: TenantId, token: TokenId, *, grace: float = DEFAULT_GRACE) -> BearerToken:
        """Issues a token with the same scopes, note and lifetime, beginning now.

        The old one works for `grace` more seconds, or until it expires if that is sooner.
        Raises UnknownEntryError when the tenant has no such token, or it is no longer valid, or was rotated before.
        """
        if not grace >= 0:
            raise UsageError(f"a grace is a number of seconds from 0 on, not {grace!r}")
        now = self._clock()
        new = BearerToken.of(new_token_id(), secrets.token_bytes(SECRET_BYTES))
        with self._database.transaction():
            old = self._good(tenant, token, now)
            life = None if old.expires is None else now + old.expires - old.created
            self._insert(tenant, new, old.scopes, old.note, now, life)
            end = now + grace if old.expires is None else min(now + grace, old.expires)
            self._database.execute(
                "UPDATE tokens SET expires = ?, successor = ? WHERE id = ?", end, new.id, old.id
            )
        return new

    def revoke(self, tenant: TenantId, token: TokenId) -> None:
        """Invalidates the token. Raises UnknownEntryError when the tenant has no such token. Twice is fine."""
        sql = "UPDATE tokens SET revoked = COALESCE(revoked, ?) WHERE tenant_id = ? AND id = ?"
        if not self._database.execute(sql, self._clock(), tenant, token):
            raise UnknownEntryError("token", token)

    def forget(self, tenant: TenantId, token: TokenId) -> None:
        """Invalidates the token and removes its row; the audit log still has it. Ignores an unknown token."""
        self._database.execute("DELETE FROM tokens WHERE tenant_id = ? AND id = ?", tenant, token)

    def extend(self, tenant: TenantId, token: TokenId, scopes: Iterable[Scope]) -> None:
        """Adds scopes to the token. Raises UnknownEntryError when the tenant has no such token."""
        with self._database.transaction():
            granted = self.get(tenant, token).scopes.union(scopes)
            sql = "UPDATE tokens SET scopes = ? WHERE tenant_id = ? AND id = ?"
            self._database.execute(sql, " ".join(sorted(granted)), tenant, token)

    def get(self, tenant: TenantId, token: TokenId) -> TokenRecord:
        """A token, valid or not. Raises UnknownEntryError when the tenant has no such token."""
        row = self._database.row("SELECT * FROM tokens WHERE tenant_id = ? AND id = ?", tenant, token)
        if row is None:
            raise UnknownEntryError("token", token)
        return _record(row)

    def of(self, tenant: TenantId) -> list[TokenRecord]:
        """All tokens that the tenant ever had, but for forgotten ones, oldest first."""
        sql = "SELECT * FROM tokens WHERE tenant_id = ? ORDER BY created, id"
        return [_record(row) for row in self._database.rows(sql, tenant)]

    def _good(self, tenant: TenantId, token: TokenId, now: float) -> TokenRecord:
        row = self._database.row(
            "SELECT * FROM tokens WHERE tenant_id = ? AND id = ? AND revoked IS NULL AND successor IS NULL",
            tenant,
            token,
        )
        if row is None or (row["expires"] is not None and row["expires"] <= now):
            raise UnknownEntryError("good token", token)
        return _record(row)

    def _insert(
        self,
        tenant: TenantId,
        token: BearerToken,
        scopes: frozenset[Scope],
        note: str,
        now: float,
        expires: float | None,
    ) -> None:
        self._database.execute(
            "INSERT INTO tokens (id, tenant_id, digest, scopes, note, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)",
            token.id,
            tenant,
            token.digest(),
            " ".join(sorted(scopes)),
            note,
            now,
            expires,
        )


def _expiry(row: DatabaseRow, now: float) -> str:
    """Why a token with the right secret is not valid; empty if it is."""
    if row["closed"] is not None:
        return "its tenant was closed"
    if row["revoked"] is not None:
        return "this token was revoked; ask for another"
    if row["expires"] is not None and row["expires"] <= now:
        return "this token has expired; ask for another"
    return ""


def _principal(row: DatabaseRow) -> Principal:
    return Principal(
        tenant=row["tenant_id"],
        tenant_name=row["name"],
        weight=row["weight"],
        token=row["id"],
        scopes=frozenset(map(Scope, row["scopes"].split())),
    )


def _record(row: DatabaseRow) -> TokenRecord:
    return TokenRecord(
        id=row["id"],
        tenant=row["tenant_id"],
        scopes=frozenset(map(Scope, row["scopes"].split())),
        note=row["note"],
        created=row["created"],
        expires=row["expires"],
        revoked=row["revoked"],
        successor=row["successor"],
    )
