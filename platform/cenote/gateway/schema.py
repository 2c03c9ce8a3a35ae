"""The tables of the gateway, as the steps that lead from nothing to now. A step that was released never changes.

The SQL is what SQLite and PostgreSQL share: no AUTOINCREMENT, no blobs (hashes are hexadecimal text), times as
seconds since the epoch, counts as BIGINT.
"""

from __future__ import annotations

from typing import Final

_TENANTS: Final = """
CREATE TABLE tenants (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    weight DOUBLE PRECISION NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    closed DOUBLE PRECISION
)
"""

_TOKENS: Final = """
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    digest TEXT NOT NULL,
    scopes TEXT NOT NULL,
    note TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION,
    revoked DOUBLE PRECISION,
    successor TEXT
)
"""

_RUNTIMES: Final = """
CREATE TABLE runtimes (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
)
"""
"""No index finds a runtime without its tenant: what is not found is not found in the same number of steps."""

_QUOTAS: Final = """
CREATE TABLE quotas (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    quota TEXT NOT NULL,
    bound BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, quota)
)
"""

_HOLDS: Final = """
CREATE TABLE holds (
    hold_key TEXT NOT NULL,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    quota TEXT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (hold_key, quota)
)
"""

MIGRATIONS: Final = (
    (
        _TENANTS,
        _TOKENS,
        "CREATE INDEX tokens_of_tenant ON tokens (tenant_id)",
        _RUNTIMES,
        _QUOTAS,
        _HOLDS,
    ),
    (
        "ALTER TABLE runtimes ADD COLUMN policy TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runtimes ADD COLUMN lease DOUBLE PRECISION NOT NULL DEFAULT 0",
        "ALTER TABLE runtimes ADD COLUMN request_key TEXT",
        "ALTER TABLE runtimes ADD COLUMN made DOUBLE PRECISION",
        "CREATE UNIQUE INDEX runtimes_by_request ON runtimes (tenant_id, request_key)",
    ),
    ("CREATE TABLE notices (number BIGINT PRIMARY KEY, event TEXT NOT NULL)",),
)
"""Statements of each step; a database at version n has seen the first n steps."""
