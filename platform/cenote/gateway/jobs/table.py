"""Which jobs a tenant has, by name and by id. With `tasks.py` and `ledger.py` the only places with their SQL.

Every question of a client names the tenant first, as for runtimes: what others have is not found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from cenote.gateway.database import NO_LIMIT, Database
from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.names import check_name
from cenote.gateway.session import Row
from cenote_security.errors import EntryExistsError, UnknownEntryError
from cenote_security.ids import JobId, TenantId

ID_PREFIX: Final = "jb_"

JobState = Literal["arriving", "waiting", "running", "done", "cancelled"]

OVER: Final = ("done", "cancelled")

SLICE: Final = 500
"""Rows that are removed at a time: everybody's records wait for a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """definition: the serialised message. wanted: `cancel`, or empty. epoch: how many processes have worked on it.

    budget: the serialised message, empty where the definition's is good. waiting_for: why nothing begins. Times are
    seconds since the epoch; 0 for not yet.
    """

    id: JobId
    tenant: TenantId
    name: str
    digest: str
    definition: bytes
    budget: bytes
    state: JobState
    wanted: str
    waiting_for: str
    revision: int
    epoch: int
    created: float
    started: float
    ended: float


class Jobs:
    """The jobs of all tenants, seen by one tenant at a time. Those that are still arriving are nobody's to see."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # -- arriving --

    def begin(self, tenant: TenantId, job: JobId, definition: bytes) -> None:
        """A job whose tasks are yet to come."""
        sql = (
            "INSERT INTO jobs (tenant_id, id, name, definition, state, created) "
            "VALUES (?, ?, ?, ?, 'arriving', ?)"
        )
        self._database.execute(sql, tenant, job, job, definition.hex(), self._clock())

    def complete(self, tenant: TenantId, job: JobId, *, name: str, key: str, digest: str) -> JobRow:
        """All of it is there. name: empty for its id.

        Raises EntryExistsError for a name that is taken, or the key is: see `by_key`.
        """
        sql = (
            "UPDATE jobs SET name = ?, request_key = ?, digest = ?, state = 'waiting', created = ? "
            "WHERE tenant_id = ? AND id = ? AND state = 'arriving'"
        )
        values = (name or job, key or None, digest, self._clock(), tenant, job)
        try:
            self._database.execute(sql, *values)
        except DuplicateRowError:
            raise EntryExistsError("job", name) from None
        return self.find(tenant, job)

    def by_key(self, tenant: TenantId, key: str) -> JobRow | None:
        """What a submission with this key has made before, if it is kept."""
        sql = "SELECT * FROM jobs WHERE tenant_id = ? AND request_key = ?"
        row = self._database.row(sql, tenant, key) if key else None
        return None if row is None else _job(row)

    # -- what there is --

    def find(self, tenant: TenantId, text: str) -> JobRow:
        """By name or id. Raises UnknownEntryError."""
        by_id = "SELECT * FROM jobs WHERE tenant_id = ? AND id = ? AND state <> 'arriving'"
        by_name = "SELECT * FROM jobs WHERE tenant_id = ? AND name = ? AND state <> 'arriving'"
        row = self._database.row(by_id if text.startswith(ID_PREFIX) else by_name, tenant, text)
        if row is None:
            raise UnknownEntryError("job", text)
        return _job(row)

    def of(self, tenant: TenantId, *, after: str = "", limit: int = NO_LIMIT) -> list[JobRow]:
        """By name, those behind `after`."""
        sql = "SELECT * FROM jobs WHERE tenant_id = ? AND name > ? AND state <> 'arriving' ORDER BY name LIMIT ?"
        return [_job(row) for row in self._database.rows(sql, tenant, after, limit)]

    def open(self, tenant: TenantId) -> int:
        """How many have not come to their end."""
        sql = "SELECT COUNT(*) AS jobs FROM jobs WHERE tenant_id = ? AND state IN ('waiting', 'running')"
        row = self._database.row(sql, tenant)
        return 0 if row is None else int(row["jobs"])

    # -- for the platform itself --

    def of_all(self, job: JobId) -> JobRow:
        """Whosever it is. Raises UnknownEntryError."""
        row = self._database.row("SELECT * FROM jobs WHERE id = ?", job)
        if row is None:
            raise UnknownEntryError("job", job)
        return _job(row)

    def ids(self) -> list[JobId]:
        return [row["id"] for row in self._database.rows("SELECT id FROM jobs")]

    def at_work(self) -> list[JobId]:
        rows = self._database.rows(
            "SELECT id FROM jobs WHERE state IN ('waiting', 'running') ORDER BY created"
        )
        return [row["id"] for row in rows]

    def arriving(self) -> list[JobRow]:
        return [_job(row) for row in self._database.rows("SELECT * FROM jobs WHERE state = 'arriving'")]

    def ended_before(self, moment: float) -> list[JobRow]:
        sql = "SELECT * FROM jobs WHERE state IN ('done', 'cancelled') AND ended < ?"
        return [_job(row) for row in self._database.rows(sql, moment)]

    def over(self) -> dict[JobId, TenantId]:
        """All that have come to their end, and whose they are."""
        sql = "SELECT id, tenant_id FROM jobs WHERE state IN ('done', 'cancelled')"
        return {row["id"]: row["tenant_id"] for row in self._database.rows(sql)}

    # -- changes --

    def cancel(self, tenant: TenantId, job: JobId) -> None:
        """One that nobody works on is over at once; whoever works on another one hears of it."""
        with self._database.transaction():
            sql = "UPDATE jobs SET wanted = 'cancel' WHERE tenant_id = ? AND id = ? AND state = 'running'"
            self._database.execute(sql, tenant, job)
            sql = (
                "UPDATE jobs SET state = 'cancelled', ended = ?, waiting_for = '' "
                "WHERE tenant_id = ? AND id = ? AND state = 'waiting'"
            )
            if self._database.execute(sql, self._clock(), tenant, job):
                sql = "UPDATE job_tasks SET state = 'cancelled' WHERE job_id = ? AND state IN ('waiting', 'running')"
                self._database.execute(sql, job)

    def reopen(self, tenant: TenantId, job: JobId, budget: bytes | None) -> None:
        """Further tasks of it are to be done. In a transaction of its caller's. budget: instead of the job's."""
        sql = (
            "UPDATE jobs SET revision = revision + 1, wanted = '', ended = 0, "
            "state = CASE state WHEN 'running' THEN 'running' ELSE 'waiting' END WHERE tenant_id = ? AND id = ?"
        )
        self._database.execute(sql, tenant, job)
        if budget is not None:
            sql = "UPDATE jobs SET budget = ? WHERE tenant_id = ? AND id = ?"
            self._database.execute(sql, budget.hex(), tenant, job)

    def tell(self, job: JobId, waiting_for: str) -> None:
        """Why nothing begins of it."""
        self._database.execute("UPDATE jobs SET waiting_for = ? WHERE id = ?", waiting_for, job)

    def remove(self, tenant: TenantId, job: JobId) -> None:
        """Whoever still works on it finds nothing to write to. Its tasks go with `clear`."""
        self._database.execute("DELETE FROM jobs WHERE tenant_id = ? AND id = ?", tenant, job)

    def clear(self, job: JobId) -> None:
        """What belonged to a job that is gone, some at a time."""
        for sql in _CLEARING:
            while self._database.execute(sql, job, job, SLICE):
                pass

    def clear_orphans(self) -> None:
        """The same of all jobs that are gone: what a gateway was clearing when it was killed."""
        sql = "SELECT DISTINCT job_id FROM job_tasks WHERE job_id NOT IN (SELECT id FROM jobs)"
        for row in self._database.rows(sql):
            self.clear(row["job_id"])


_CLEARING: Final = tuple(
    f"DELETE FROM {table} WHERE job_id = ? AND position IN "  # noqa: S608
    f"(SELECT position FROM {table} WHERE job_id = ? LIMIT ?)"
    for table in ("job_logs", "job_results", "job_work", "job_tasks")
)
"""Some rows of a job; those by which it is found again last."""


def checked_name(name: str) -> str:
    """Raises UsageError for one that is none, or looks like an id."""
    return check_name("job", name) if name else ""


def _job(row: Row) -> JobRow:
    return JobRow(
        id=row["id"],
        tenant=row["tenant_id"],
        name=row["name"],
        digest=row["digest"],
        definition=bytes.fromhex(row["definition"]),
        budget=bytes.fromhex(row["budget"]),
        state=row["state"],
        wanted=row["wanted"],
        waiting_for=row["waiting_for"],
        revision=row["revision"],
        epoch=row["epoch"],
        created=row["created"],
        started=row["started"],
        ended=row["ended"],
    )
