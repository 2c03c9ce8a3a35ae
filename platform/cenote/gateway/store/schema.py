"""The tables of the gateway, as migration steps from an empty database. A released step never changes.

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
"""No index finds a runtime without its tenant: an unknown runtime takes as many steps as another tenant's."""

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

_TEAMS: Final = """
CREATE TABLE teams (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    definition TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
)
"""

_TEAM_RUNS: Final = """
CREATE TABLE team_runs (
    team_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    request_key TEXT,
    work TEXT NOT NULL,
    state TEXT NOT NULL,
    wanted TEXT NOT NULL DEFAULT '',
    outcome TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    created DOUBLE PRECISION NOT NULL,
    started DOUBLE PRECISION NOT NULL DEFAULT 0,
    ended DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (team_id, number),
    UNIQUE (team_id, request_key)
)
"""

_TEAM_NEWS: Final = """
CREATE TABLE team_news (
    team_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    run BIGINT NOT NULL,
    agent TEXT NOT NULL,
    place TEXT NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (team_id, number)
)
"""

_TEAM_RECORD: Final = """
CREATE TABLE team_record (
    team_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    agent TEXT NOT NULL,
    place TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (team_id, position)
)
"""

_JOBS: Final = """
CREATE TABLE jobs (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    request_key TEXT,
    digest TEXT NOT NULL DEFAULT '',
    definition TEXT NOT NULL,
    budget TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    wanted TEXT NOT NULL DEFAULT '',
    waiting_for TEXT NOT NULL DEFAULT '',
    revision BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    kept BIGINT NOT NULL DEFAULT 0,
    created DOUBLE PRECISION NOT NULL,
    started DOUBLE PRECISION NOT NULL DEFAULT 0,
    ended DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name),
    UNIQUE (tenant_id, request_key)
)
"""
"""state: `arriving` until all tasks are there. kept: characters of results and logs. budget: replaces the
definition's, where it is not empty.
"""

_JOB_TASKS: Final = """
CREATE TABLE job_tasks (
    job_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    attempts BIGINT NOT NULL DEFAULT 0,
    lost BIGINT NOT NULL DEFAULT 0,
    tries BIGINT NOT NULL DEFAULT 0,
    losses BIGINT NOT NULL DEFAULT 0,
    due DOUBLE PRECISION NOT NULL DEFAULT 0,
    duration DOUBLE PRECISION NOT NULL DEFAULT 0,
    tokens BIGINT NOT NULL DEFAULT 0,
    nanodollars BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, position),
    UNIQUE (job_id, name)
)
"""
"""Rows are small: all rows of a job are read to report its progress. Large values are in tables of their own."""

_JOB_WORK: Final = """
CREATE TABLE job_work (
    job_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    work TEXT NOT NULL,
    variables TEXT NOT NULL,
    PRIMARY KEY (job_id, position)
)
"""

_JOB_RESULTS: Final = """
CREATE TABLE job_results (
    job_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    value TEXT NOT NULL,
    answer TEXT NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (job_id, position)
)
"""

_JOB_LOGS: Final = """
CREATE TABLE job_logs (
    job_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    text TEXT NOT NULL,
    left_out BIGINT NOT NULL,
    PRIMARY KEY (job_id, position)
)
"""

_ENVIRONMENTS: Final = """
CREATE TABLE environments (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    token TEXT NOT NULL,
    state TEXT NOT NULL,
    digest TEXT NOT NULL DEFAULT '',
    facts TEXT NOT NULL DEFAULT '',
    size BIGINT NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
)
"""
"""state: `building`, `ready`, `failed`. One that was removed has its id as its name: `leaving` until its build is
over, `removed` until no machine has its files. facts: lock and packages, as JSON.
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
    (
        _TEAMS,
        "CREATE UNIQUE INDEX teams_by_id ON teams (id)",
        _TEAM_RUNS,
        _TEAM_NEWS,
        _TEAM_RECORD,
    ),
    (
        "ALTER TABLE runtimes ADD COLUMN durable BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE runtimes ADD COLUMN hibernate_after DOUBLE PRECISION NOT NULL DEFAULT 0",
    ),
    (
        "ALTER TABLE runtimes ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runtimes ADD COLUMN parent_name TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runtimes ADD COLUMN parent_step BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE runtimes ADD COLUMN parent_history TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runtimes ADD COLUMN fork_key TEXT",
        "ALTER TABLE runtimes ADD COLUMN fork_place BIGINT NOT NULL DEFAULT 0",
        "CREATE INDEX runtimes_by_fork ON runtimes (tenant_id, fork_key)",
    ),
    (
        _JOBS,
        "CREATE UNIQUE INDEX jobs_by_id ON jobs (id)",
        _JOB_TASKS,
        "CREATE INDEX job_tasks_by_state ON job_tasks (job_id, state, tokens, nanodollars)",
        _JOB_WORK,
        _JOB_RESULTS,
        _JOB_LOGS,
    ),
    (),  # 0.1.0 has the steps before; it does not know the policies, audit entries and states that came since
    (_ENVIRONMENTS,),
)
"""Statements of each step; a database at version n has run the first n steps. A step without any keeps earlier
versions of Cenote from rows whose content they would read in part."""

TABLES: Final = {
    "tenants": ("id",),
    "tokens": ("id",),
    "runtimes": ("tenant_id", "id"),
    "quotas": ("tenant_id", "quota"),
    "holds": ("hold_key", "quota"),
    "notices": ("number",),
    "teams": ("tenant_id", "id"),
    "team_runs": ("team_id", "number"),
    "team_news": ("team_id", "number"),
    "team_record": ("team_id", "position"),
    "jobs": ("tenant_id", "id"),
    "job_tasks": ("job_id", "position"),
    "job_work": ("job_id", "position"),
    "job_results": ("job_id", "position"),
    "job_logs": ("job_id", "position"),
    "environments": ("tenant_id", "id"),
}
"""Each table with its primary key, after those that its rows refer to."""
