"""The tasks of jobs, for whoever asks for them. With `table.py` and `ledger.py` the only places with their SQL."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cenote.gateway.database import Database
from cenote.gateway.session import Row
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import job_pb2
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import JobId
from cenote_security.verdict import of_reason

TaskState = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
STATES: Final[tuple[TaskState, ...]] = get_args(TaskState)

OVER: Final[dict[str, job_pb2.JobResult.Status.ValueType]] = {
    "succeeded": job_pb2.JobResult.SUCCEEDED,
    "failed": job_pb2.JobResult.FAILED,
    "cancelled": job_pb2.JobResult.CANCELLED,
}

PAGE: Final = 50
"""Results that are read at a time: one has a value of up to a quarter of a mebibyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Of a job's tasks. counts: by state."""

    counts: Counter[str]
    tokens: int
    nanodollars: int


class Tasks:
    """By job; who may see a job is decided before. Used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: JobId, first: int, tasks: Iterable[job_pb2.JobTask]) -> None:
        """first: the position of the first of them, from 1."""
        row = "INSERT INTO job_tasks (job_id, position, name) VALUES (?, ?, ?)"
        work = "INSERT INTO job_work (job_id, position, kind, work, variables) VALUES (?, ?, ?, ?, ?)"
        with self._database.transaction():
            for position, task in enumerate(tasks, first):
                kind = task.WhichOneof("work") or ""
                self._database.execute(row, job, position, task.id)
                self._database.execute(work, job, position, kind, getattr(task, kind), task.variables)

    def sums(self, job: JobId) -> Sums:
        sql = (
            "SELECT state, COUNT(*) AS tasks, CAST(SUM(tokens) AS BIGINT) AS tokens, "
            "CAST(SUM(nanodollars) AS BIGINT) AS nanodollars "
            "FROM job_tasks WHERE job_id = ? GROUP BY state"
        )
        rows = self._database.rows(sql, job)
        return Sums(
            counts=Counter({row["state"]: row["tasks"] for row in rows}),
            tokens=sum(row["tokens"] for row in rows),
            nanodollars=sum(row["nanodollars"] for row in rows),
        )

    def sums_of_all(self) -> dict[JobId, Sums]:
        """Of all tenants' jobs. For the gateway itself; an index has all that is read."""
        sql = (
            "SELECT job_id, state, COUNT(*) AS tasks, CAST(SUM(tokens) AS BIGINT) AS tokens, "
            "CAST(SUM(nanodollars) AS BIGINT) AS nanodollars FROM job_tasks GROUP BY job_id, state"
        )
        found: dict[JobId, Sums] = {}
        for row in self._database.rows(sql):
            before = found.get(row["job_id"], Sums(counts=Counter(), tokens=0, nanodollars=0))
            found[row["job_id"]] = Sums(
                counts=before.counts + Counter({row["state"]: row["tasks"]}),
                tokens=before.tokens + row["tokens"],
                nanodollars=before.nanodollars + row["nanodollars"],
            )
        return found

    def marks(self, job: JobId) -> tuple[int, ...]:
        """How far its tasks are: each number is bounded."""
        sql = (
            "SELECT SUM(attempts) AS attempts, SUM(lost) AS lost, "
            "SUM(CASE WHEN state IN ('waiting', 'running') THEN 1 ELSE 0 END) AS open FROM job_tasks WHERE job_id = ?"
        )
        row = self._database.row(sql, job)
        return tuple(map(int, (row["attempts"] or 0, row["lost"] or 0, row["open"] or 0))) if row else ()

    def results(self, job: JobId, after: int, *, whole: bool) -> list[job_pb2.JobResult]:
        """A page, by position. whole: up to the first that is not over; else those that are over."""
        if whole:
            sql = "SELECT * FROM job_tasks WHERE job_id = ? AND position > ? ORDER BY position LIMIT ?"
        else:
            sql = (
                "SELECT * FROM job_tasks WHERE job_id = ? AND position > ? "
                "AND state IN ('succeeded', 'failed', 'cancelled') ORDER BY position LIMIT ?"
            )
        rows = self._database.rows(sql, job, after, PAGE)
        over = list(itertools.takewhile(lambda row: row["state"] in OVER, rows))
        return [self._result(job, row) for row in over]

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

    def renew(self, job: JobId, names: Sequence[str]) -> int:
        """Has tasks done again that failed or were cancelled; without names all of them. How many there are.

        In a transaction of its caller's. Raises UnknownEntryError. Named ones that have succeeded, or are not over,
        stay as they are.
        """
        sql = (
            "UPDATE job_tasks SET state = 'waiting', tries = 0, losses = 0, due = 0 "
            "WHERE job_id = ? AND state IN ('failed', 'cancelled')"
        )
        if not names:
            return self._database.execute(sql, job)
        changed = 0
        for name in names:
            known = "SELECT position FROM job_tasks WHERE job_id = ? AND name = ?"
            if self._database.row(known, job, name) is None:
                raise UnknownEntryError("task", name)
            changed += self._database.execute(f"{sql} AND name = ?", job, name)
        return changed

    def _result(self, job: JobId, row: Row) -> job_pb2.JobResult:
        told = make(
            job_pb2.JobResult,
            index=row["position"],
            id=row["name"],
            status=OVER[row["state"]],
            attempts=row["attempts"],
            lost=row["lost"],
            duration=row["duration"],
            tokens=row["tokens"],
            nanodollars=row["nanodollars"],
        )
        sql = "SELECT value, answer, error FROM job_results WHERE job_id = ? AND position = ?"
        result = self._database.row(sql, job, row["position"])
        if result is not None and row["state"] != "cancelled":
            told.value, told.answer = utf8_text(result["value"]), utf8_text(result["answer"])
            if result["error"]:
                error: dict[str, str] = json.loads(result["error"])
                verdict = of_reason(error["reason"])
                told.error.CopyFrom(
                    make(job_pb2.JobError, **error, verdict=verdict.kind, limit=verdict.limit)
                )
        return told
