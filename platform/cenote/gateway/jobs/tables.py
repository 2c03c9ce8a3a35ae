"""Tables of jobs: the jobs of each tenant, and their tasks. With `ledger.py` the only places with their SQL.

`JobWorkload` is the view for code that starts processes for jobs.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cenote.gateway.errors import DuplicateRowError
from cenote.gateway.store.database import NO_LIMIT, Database
from cenote.gateway.store.session import DatabaseRow, Value
from cenote.gateway.values.names import check_name
from cenote.gateway.work.worker_slots import SlotLimits, share_of
from cenote.gateway.work.workload import Kind
from cenote_proto.scalars import make, put, utf8_text
from cenote_proto.v1 import job_pb2
from cenote_security.errors import EntryExistsError, UnknownEntryError
from cenote_security.ids import JobId, TenantId
from cenote_security.verdict import of_reason
from cenote_worker.supervisor.start import machine_memory

ID_PREFIX: Final = "jb_"

JobState = Literal["arriving", "waiting", "running", "done", "cancelled"]

FINAL_JOB_STATES: Final = ("done", "cancelled")

AT_ONCE: Final = 5_000
"""Rows that are changed or removed in one transaction: other writers wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """definition: the serialised message. wanted: `cancel`, or empty. epoch: how many processes have worked on it.

    budget: the serialised message; empty where the definition's applies. waiting_for: why no task begins. Times are
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


class JobTable:
    """The jobs of all tenants, seen by one tenant at a time. Jobs that are still arriving are visible to no one."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # -- submission --

    def begin(self, tenant: TenantId, job: JobId, definition: bytes) -> None:
        """Inserts a job whose tasks are yet to come."""
        sql = (
            "INSERT INTO jobs (tenant_id, id, name, definition, state, created) "
            "VALUES (?, ?, ?, ?, 'arriving', ?)"
        )
        self._database.execute(sql, tenant, job, job, definition.hex(), self._clock())

    def complete(self, tenant: TenantId, job: JobId, *, name: str, key: str, digest: str) -> JobRow:
        """Marks a job as complete. name: empty for its id.

        Raises EntryExistsError if the name or the key is taken: see `by_key`.
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
        """The job that a submission with this key has made, if it still exists."""
        sql = "SELECT * FROM jobs WHERE tenant_id = ? AND request_key = ?"
        row = self._database.row(sql, tenant, key) if key else None
        return None if row is None else _job(row)

    # -- reading --

    def find(self, tenant: TenantId, text: str) -> JobRow:
        """By name or id. Raises UnknownEntryError."""
        by_id = "SELECT * FROM jobs WHERE tenant_id = ? AND id = ? AND state <> 'arriving'"
        by_name = "SELECT * FROM jobs WHERE tenant_id = ? AND name = ? AND state <> 'arriving'"
        row = self._database.row(by_id if text.startswith(ID_PREFIX) else by_name, tenant, text)
        if row is None:
            raise UnknownEntryError("job", text)
        return _job(row)

    def of(self, tenant: TenantId, *, after: str = "", limit: int = NO_LIMIT) -> list[JobRow]:
        """By name, those after `after`."""
        sql = "SELECT * FROM jobs WHERE tenant_id = ? AND name > ? AND state <> 'arriving' ORDER BY name LIMIT ?"
        return [_job(row) for row in self._database.rows(sql, tenant, after, limit)]

    def open(self, tenant: TenantId) -> int:
        """How many are not over."""
        sql = "SELECT COUNT(*) AS jobs FROM jobs WHERE tenant_id = ? AND state IN ('waiting', 'running')"
        row = self._database.row(sql, tenant)
        return 0 if row is None else int(row["jobs"])

    # -- for the platform itself --

    def of_all(self, job: JobId) -> JobRow:
        """A job of any tenant. Raises UnknownEntryError."""
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

    def newest(self) -> float:
        """When the last job was submitted, in seconds since the epoch; 0 where there is none."""
        row = self._database.row("SELECT MAX(created) AS newest FROM jobs WHERE state <> 'arriving'")
        return 0.0 if row is None else float(row["newest"] or 0.0)

    def ended_before(self, moment: float) -> list[JobRow]:
        sql = "SELECT * FROM jobs WHERE state IN ('done', 'cancelled') AND ended < ?"
        return [_job(row) for row in self._database.rows(sql, moment)]

    def over(self) -> dict[JobId, TenantId]:
        """All jobs that are over, with their tenants."""
        sql = "SELECT id, tenant_id FROM jobs WHERE state IN ('done', 'cancelled')"
        return {row["id"]: row["tenant_id"] for row in self._database.rows(sql)}

    # -- changes --

    def cancel(self, tenant: TenantId, job: JobId) -> None:
        """Cancels a job: at once if no process works on it and it is not large; otherwise its process does it."""
        with self._database.transaction():
            sql = (
                "UPDATE jobs SET wanted = 'cancel' "
                "WHERE tenant_id = ? AND id = ? AND state IN ('waiting', 'running')"
            )
            self._database.execute(sql, tenant, job)
            if self.of_all(job).state == "waiting" and cancel_some(self._database, job) < AT_ONCE:
                sql = (
                    "UPDATE jobs SET state = 'cancelled', wanted = '', ended = ?, waiting_for = '' "
                    "WHERE tenant_id = ? AND id = ?"
                )
                self._database.execute(sql, self._clock(), tenant, job)

    def reopen(self, tenant: TenantId, job: JobId, budget: bytes | None) -> None:
        """Reopens a job to run tasks again. Inside the caller's transaction. budget: replaces the job's."""
        sql = (
            "UPDATE jobs SET revision = revision + 1, wanted = '', ended = 0, "
            "state = CASE state WHEN 'running' THEN 'running' ELSE 'waiting' END WHERE tenant_id = ? AND id = ?"
        )
        self._database.execute(sql, tenant, job)
        if budget is not None:
            sql = "UPDATE jobs SET budget = ? WHERE tenant_id = ? AND id = ?"
            self._database.execute(sql, budget.hex(), tenant, job)

    def tell(self, job: JobId, waiting_for: str) -> None:
        """Stores why no task of the job begins."""
        self._database.execute("UPDATE jobs SET waiting_for = ? WHERE id = ?", waiting_for, job)

    def remove(self, tenant: TenantId, job: JobId) -> None:
        """A process that still works on the job can no longer write. `clear` removes its tasks."""
        self._database.execute("DELETE FROM jobs WHERE tenant_id = ? AND id = ?", tenant, job)

    def clear(self, job: JobId) -> None:
        """Removes the rows of a removed job, some at a time."""
        for sql in _CLEARING:
            while self._database.execute(sql, job, job, AT_ONCE):
                pass

    def clear_orphans(self) -> None:
        """Clears all removed jobs: a gateway may have been killed while clearing."""
        sql = "SELECT DISTINCT job_id FROM job_tasks WHERE job_id NOT IN (SELECT id FROM jobs)"
        for row in self._database.rows(sql):
            self.clear(row["job_id"])


_CLEARING: Final = tuple(
    f"DELETE FROM {table} WHERE job_id = ? AND position IN "  # noqa: S608
    f"(SELECT position FROM {table} WHERE job_id = ? LIMIT ?)"
    for table in ("job_logs", "job_results", "job_work", "job_tasks")
)
"""Deletes some rows of a job; the rows by which the job is found again go last."""


def cancel_some(database: Database, job: JobId) -> int:
    """Cancels up to AT_ONCE tasks that wait or run, inside the caller's transaction. Returns how many."""
    sql = (
        "UPDATE job_tasks SET state = 'cancelled' WHERE job_id = ? AND position IN "
        "(SELECT position FROM job_tasks WHERE job_id = ? AND state IN ('waiting', 'running') LIMIT ?)"
    )
    return database.execute(sql, job, job, AT_ONCE)


def checked_name(name: str) -> str:
    """Raises UsageError for an invalid name, or one that looks like an id."""
    return check_name("job", name) if name else ""


def _job(row: DatabaseRow) -> JobRow:
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


_RENEW: Final = (
    "UPDATE job_tasks SET state = 'waiting', tries = 0, losses = 0, due = 0 "
    "WHERE job_id = ? AND state IN ('failed', 'cancelled')"
)

_INSERTED_AT_ONCE: Final = 100
"""Tasks of one statement."""


def _rows(columns: int, rows: int) -> str:
    """Places of values in an INSERT."""
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


TaskState = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
TASK_STATES: Final[tuple[TaskState, ...]] = get_args(TaskState)

TASK_STATUSES: Final[dict[str, job_pb2.JobResult.Status.ValueType]] = {
    "succeeded": job_pb2.JobResult.SUCCEEDED,
    "failed": job_pb2.JobResult.FAILED,
    "cancelled": job_pb2.JobResult.CANCELLED,
}

TASKS_OF_A_PAGE: Final = 500
"""Tasks that are listed at a time; without values, one has a few hundred bytes."""

MAX_CAUSES: Final = 1_000
"""Causes that are told apart."""

_OTHER_CAUSES: Final = ("",)

EXAMPLES: Final = 5
"""Tasks that are named for each cause of failures."""

MAX_MESSAGE: Final = 4_000
"""Characters of an error's message. A part of it comes from the jail."""

MAX_ERROR_LISTED: Final = 500
"""Of these, the characters that lists show."""

RESULTS_OF_A_PAGE: Final = 50
"""Results that are read at a time: one has a value of up to 256 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTotals:
    """Totals over a job's tasks. counts: by state."""

    counts: Counter[str]
    tokens: int
    nanodollars: int


class TaskTable:
    """Tasks by job; the caller checks who may see a job. Used from any thread.

    Where pages are read by position, the state stands in COALESCE: with the index on states, which the database would
    take otherwise, each page sorts all tasks of the job.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: JobId, first: int, tasks: Sequence[job_pb2.JobTask]) -> list[job_pb2.JobTask]:
        """Stores tasks. Returns those that are not stored, since a task of the job has their id.

        first: the position of the first task, from 1.
        """
        refused = []
        with self._database.transaction():
            for start in range(0, len(tasks), _INSERTED_AT_ONCE):
                refused += self._insert(job, first + start, tasks[start : start + _INSERTED_AT_ONCE])
        return refused

    def _insert(self, job: JobId, first: int, tasks: Sequence[job_pb2.JobTask]) -> list[job_pb2.JobTask]:
        places, rows, works = range(first, first + len(tasks)), list[Value](), list[Value]()
        for position, task in zip(places, tasks, strict=True):
            kind = task.WhichOneof("work") or ""
            rows += (job, position, task.id)
            works += (job, position, kind, getattr(task, kind), task.variables)
        sql = "INSERT INTO job_tasks (job_id, position, name) VALUES {} ON CONFLICT DO NOTHING"
        stored = self._database.execute(sql.format(_rows(3, len(tasks))), *rows)
        sql = "INSERT INTO job_work (job_id, position, kind, work, variables) VALUES {}"
        self._database.execute(sql.format(_rows(5, len(tasks))), *works)
        if stored == len(tasks):
            return []
        sql = "SELECT position FROM job_tasks WHERE job_id = ? AND position >= ? AND position < ?"
        there = {row["position"] for row in self._database.rows(sql, job, places.start, places.stop)}
        return [task for position, task in zip(places, tasks, strict=True) if position not in there]

    def sums(self, job: JobId) -> JobTotals:
        sql = (
            "SELECT state, COUNT(*) AS tasks, CAST(SUM(tokens) AS BIGINT) AS tokens, "
            "CAST(SUM(nanodollars) AS BIGINT) AS nanodollars "
            "FROM job_tasks WHERE job_id = ? GROUP BY state"
        )
        rows = self._database.rows(sql, job)
        return JobTotals(
            counts=Counter({row["state"]: row["tasks"] for row in rows}),
            tokens=sum(row["tokens"] for row in rows),
            nanodollars=sum(row["nanodollars"] for row in rows),
        )

    def sums_of_all(self) -> dict[JobId, JobTotals]:
        """Sums of all tenants' jobs. For the gateway itself; an index covers all columns that are read."""
        sql = (
            "SELECT job_id, state, COUNT(*) AS tasks, CAST(SUM(tokens) AS BIGINT) AS tokens, "
            "CAST(SUM(nanodollars) AS BIGINT) AS nanodollars FROM job_tasks GROUP BY job_id, state"
        )
        found: dict[JobId, JobTotals] = {}
        for row in self._database.rows(sql):
            before = found.get(row["job_id"], JobTotals(counts=Counter(), tokens=0, nanodollars=0))
            found[row["job_id"]] = JobTotals(
                counts=before.counts + Counter({row["state"]: row["tasks"]}),
                tokens=before.tokens + row["tokens"],
                nanodollars=before.nanodollars + row["nanodollars"],
            )
        return found

    def marks(self, job: JobId) -> tuple[int, ...]:
        """Counters of the progress of the tasks: each number is bounded."""
        sql = (
            "SELECT SUM(attempts) AS attempts, SUM(lost) AS lost, "
            "SUM(CASE WHEN state IN ('waiting', 'running') THEN 1 ELSE 0 END) AS open FROM job_tasks WHERE job_id = ?"
        )
        row = self._database.row(sql, job)
        return tuple(map(int, (row["attempts"] or 0, row["lost"] or 0, row["open"] or 0))) if row else ()

    def results(self, job: JobId, after: int, *, whole: bool) -> list[job_pb2.JobResult]:
        """A page of results by position. whole: stops at the first task that is not over; else skips such tasks."""
        over = "" if whole else "AND COALESCE(t.state, '') IN ('succeeded', 'failed', 'cancelled') "
        sql = (
            "SELECT t.*, r.value, r.answer, r.error FROM job_tasks t LEFT JOIN job_results r "  # noqa: S608  (constants)
            "ON r.job_id = t.job_id AND r.position = t.position "
            f"WHERE t.job_id = ? AND t.position > ? {over}ORDER BY t.position LIMIT ?"
        )
        rows = self._database.rows(sql, job, after, RESULTS_OF_A_PAGE)
        return [_result(row) for row in itertools.takewhile(lambda row: row["state"] in TASK_STATUSES, rows)]

    def summaries(
        self, job: JobId, after: int, limit: int, states: Collection[TaskState] = ()
    ) -> list[job_pb2.TaskSummary]:
        """Tasks by position, those in `states`; empty for all."""
        sql = (
            "SELECT t.*, r.error FROM job_tasks t LEFT JOIN job_results r "
            "ON r.job_id = t.job_id AND r.position = t.position AND t.state = 'failed' "
            "WHERE t.job_id = ? AND t.position > ? AND COALESCE(t.state, '') IN (?, ?, ?, ?, ?) "
            "ORDER BY t.position LIMIT ?"
        )
        wanted = [state if not states or state in states else "" for state in TASK_STATES]
        return [_summary(row) for row in self._database.rows(sql, job, after, *wanted, limit)]

    def task(self, job: JobId, name: str) -> job_pb2.TaskDescription:
        """Raises UnknownEntryError for a task that the job does not have."""
        sql = (
            "SELECT t.*, r.value, r.answer, r.error, w.kind, w.work, w.variables FROM job_tasks t "
            "JOIN job_work w ON w.job_id = t.job_id AND w.position = t.position "
            "LEFT JOIN job_results r ON r.job_id = t.job_id AND r.position = t.position "
            "WHERE t.job_id = ? AND t.name = ?"
        )
        row = self._database.row(sql, job, name)
        if row is None:
            raise UnknownEntryError("task", name)
        work = make(job_pb2.JobTask, id=row["name"], variables=row["variables"], line=row["position"])
        put(work, row["kind"], row["work"])
        told = make(job_pb2.TaskDescription, summary=_summary(row, MAX_MESSAGE), work=work)
        told.value, told.answer = utf8_text(row["value"] or ""), utf8_text(row["answer"] or "")
        return told

    def failures(self, job: JobId) -> list[job_pb2.FailureGroup]:
        """Failed tasks by the type, reason and stage of their error, the most frequent first."""
        groups: dict[tuple[str, ...], job_pb2.FailureGroup] = {}
        for row in self._failed(job):
            error = json.loads(row["error"] or "{}")
            cause = tuple(error.get(part, "") for part in ("type", "reason", "stage"))
            if (group := groups.get(cause)) is None:
                if len(groups) >= MAX_CAUSES:  # classes that a task makes may have any names
                    cause, error = _OTHER_CAUSES, {}
                group = groups.setdefault(cause, job_pb2.FailureGroup())
                if error:
                    group.error.CopyFrom(_error(error, MAX_ERROR_LISTED))
            group.tasks += 1
            if len(group.examples) < EXAMPLES:
                group.examples.append(utf8_text(row["name"]))
        return sorted(groups.values(), key=lambda group: -group.tasks)

    def _failed(self, job: JobId) -> Iterator[DatabaseRow]:
        """Failed tasks by position: name and error."""
        sql = (
            "SELECT t.position, t.name, r.error FROM job_tasks t JOIN job_results r "
            "ON r.job_id = t.job_id AND r.position = t.position "
            "WHERE t.job_id = ? AND t.position > ? AND COALESCE(t.state, '') = 'failed' ORDER BY t.position LIMIT ?"
        )
        place = 0
        while rows := self._database.rows(sql, job, place, AT_ONCE):
            yield from rows
            place = rows[-1]["position"]

    def log(self, job: JobId, task: str) -> job_pb2.TaskLog:
        """Raises UnknownEntryError for a task that the job does not have."""
        row = self._database.row("SELECT position FROM job_tasks WHERE job_id = ? AND name = ?", job, task)
        if row is None:
            raise UnknownEntryError("task", task)
        sql = "SELECT * FROM job_logs WHERE job_id = ? AND position = ?"
        log = self._database.row(sql, job, row["position"])
        if log is None:
            return job_pb2.TaskLog()
        return make(job_pb2.TaskLog, text=log["text"], left_out=log["left_out"])

    def renewable(self, job: JobId, place: int) -> int:
        """The place up to which `renew_between` resets up to AT_ONCE failed or cancelled tasks; `place` for none."""
        sql = (
            "SELECT MAX(position) AS place FROM (SELECT position FROM job_tasks WHERE job_id = ? AND position > ? "
            "AND COALESCE(state, '') IN ('failed', 'cancelled') ORDER BY position LIMIT ?) AS page"
        )
        row = self._database.row(sql, job, place, AT_ONCE)
        return place if row is None else int(row["place"] or place)

    def renew_between(self, job: JobId, place: int, end: int) -> int:
        """Resets failed or cancelled tasks behind `place`, up to `end`, so that they run again. Returns how many.

        Inside the caller's transaction.
        """
        return self._database.execute(f"{_RENEW} AND position > ? AND position <= ?", job, place, end)

    def renew(self, job: JobId, names: Sequence[str]) -> int:
        """Resets failed or cancelled tasks so that they run again. Returns how many.

        Inside the caller's transaction. Raises UnknownEntryError. Named tasks that have succeeded, or are not over,
        stay as they are.
        """
        changed = 0
        for name in names:
            known = "SELECT position FROM job_tasks WHERE job_id = ? AND name = ?"
            if self._database.row(known, job, name) is None:
                raise UnknownEntryError("task", name)
            changed += self._database.execute(f"{_RENEW} AND name = ?", job, name)
        return changed


def _result(row: DatabaseRow) -> job_pb2.JobResult:
    told = make(
        job_pb2.JobResult,
        index=row["position"],
        id=row["name"],
        status=TASK_STATUSES[row["state"]],
        attempts=row["attempts"],
        lost=row["lost"],
        duration=row["duration"],
        tokens=row["tokens"],
        nanodollars=row["nanodollars"],
    )
    if row["value"] is not None and row["state"] != "cancelled":
        told.value, told.answer = utf8_text(row["value"]), utf8_text(row["answer"])
        if row["error"]:
            told.error.CopyFrom(_error(json.loads(row["error"])))
    return told


def _error(error: Mapping[str, str], longest: int = MAX_MESSAGE) -> job_pb2.JobError:
    """longest: characters of the message."""
    verdict, message = of_reason(error["reason"]), error["message"]
    told = make(job_pb2.JobError, **error, verdict=verdict.kind, limit=verdict.limit)
    if len(message) > longest:
        told.message = utf8_text(f"{message[:longest]} ...")
    return told


def _summary(row: DatabaseRow, longest: int = MAX_ERROR_LISTED) -> job_pb2.TaskSummary:
    told = make(
        job_pb2.TaskSummary,
        index=row["position"],
        id=row["name"],
        state=job_pb2.TaskSummary.State.Value(row["state"].upper()),
        attempts=row["attempts"],
        lost=row["lost"],
        duration=row["duration"],
        tokens=row["tokens"],
        nanodollars=row["nanodollars"],
    )
    if row["error"] and row["state"] == "failed":
        told.error.CopyFrom(_error(json.loads(row["error"]), longest))
    return told


EXPECTED: Final = 3600.0
"""Seconds after a submission for which a process is kept ready for the next one. It takes some hundred megabytes, so
a platform without jobs has none."""


class JobWorkload:
    """See Workload."""

    kind: Final[Kind] = "job"
    can_make_room: Final = True

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._jobs = JobTable(database)
        self._tasks = TaskTable(database)
        self._clock = clock
        self._newest = 0.0
        self._expected = EXPECTED  # of its own: several platforms of one process may differ

    @property
    def share(self) -> SlotLimits:
        return share_of(machine_memory(), tenants=4)

    def at_work(self) -> Sequence[str]:
        return self._jobs.at_work()

    def is_open(self, work: str) -> bool:
        try:
            return self._jobs.of_all(JobId(work)).state in ("waiting", "running")
        except UnknownEntryError:
            return False

    def tenant(self, work: str) -> TenantId:
        return self._jobs.of_all(JobId(work)).tenant

    def expects_more(self) -> bool:
        self._newest = max(self._newest, self._jobs.newest())  # a job that was removed counts
        return self._clock() - self._newest < self._expected

    def progress(self, work: str) -> Hashable:
        """Counts of the outcomes and losses of the tasks: each is bounded, so that retries end."""
        return self._tasks.marks(JobId(work))

    def stuck(self, work: str, reason: str) -> None:
        """Ends no task: one that kills each process is limited by its losses, and the others have not failed."""
        self._jobs.tell(JobId(work), reason)
