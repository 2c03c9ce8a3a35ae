"""The store, as seen by the process that works on a job: the tasks to run, and their outcomes.

Each attempt is recorded before it begins, and its result once, when it exists. Of two processes that work on one job
only the later one can write, so an attempt that it finds under way has ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from cenote.gateway.jobs.rules import MAX_CONCURRENCY
from cenote.gateway.jobs.schedule import PendingTask, lost
from cenote.gateway.jobs.tables import AT_ONCE, JobRow, JobTable, cancel_some
from cenote.gateway.store.database import Database
from cenote.gateway.work.workload import Fence, SupersededError
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import JobId

MAX_KEPT: Final = 8 * 2**30
"""Characters of results and logs of one job: all tenants share a database. Logs are dropped first, see `end`."""

LOGS_UP_TO: Final = 256 * 2**20
"""Characters from which on no more logs are stored."""

PAGE: Final = 2 * MAX_CONCURRENCY
"""Tasks that are read at a time to be run: a job may have millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task that is about to begin. kind: `task` or `code`. variables: JSON, or empty."""

    kind: str
    work: str
    variables: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """Why an attempt failed. See JobError."""

    type: str
    message: str
    reason: str
    stage: Literal["setup", "variables", "task", "result", "platform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """The outcome of an attempt. value: JSON, or empty. error: None for success. left_out: of the log."""

    value: str = ""
    answer: str = ""
    error: TaskFailure | None = None
    duration: float = 0.0
    log: str = ""
    left_out: int = 0


@dataclass(slots=True)
class JobLedger:
    """For one job and one process. Each write is on the disk when it returns.

    Raises SupersededError, DatabaseUnavailableError.
    """

    database: Database
    job: JobId
    clock: Callable[[], float] = time.time
    _fence: Fence = field(init=False)
    _read: int = field(default=0, init=False)
    """The revision up to which tasks were handed out."""
    _place: int = field(default=0, init=False)
    """The place in the input up to which tasks were handed out."""
    _whole: bool = field(default=False, init=False)
    """Whether all tasks of this revision were handed out."""
    _told: str = field(default="", init=False)
    """The reason last stored for why no task begins."""

    def __post_init__(self) -> None:
        self._fence = Fence(self.database, "job", self.job)

    @property
    def row(self) -> JobRow:
        try:
            return JobTable(self.database).of_all(self.job)
        except UnknownEntryError:
            raise SupersededError from None

    def spent(self) -> tuple[int, int]:
        """Tokens and nanodollars of all attempts."""
        sql = (
            "SELECT CAST(SUM(tokens) AS BIGINT) AS tokens, CAST(SUM(nanodollars) AS BIGINT) AS nanodollars "
            "FROM job_tasks WHERE job_id = ?"
        )
        row = self.database.row(sql, self.job)
        assert row is not None, "a sum is one row"
        return int(row["tokens"] or 0), int(row["nanodollars"] or 0)

    # -- tasks to run --

    def begin(self) -> list[PendingTask]:
        """Takes the job over. An attempt of a former process is lost: its task runs again, or has failed. Returns the
        first tasks to run; see `added` for the others.
        """
        with self._fence.writing():
            sql = (
                "UPDATE jobs SET state = 'running', waiting_for = '', "
                "started = CASE started WHEN 0 THEN ? ELSE started END "
                "WHERE id = ? AND state IN ('waiting', 'running')"
            )
            if not self.database.execute(sql, self.clock(), self.job):  # it was cancelled meanwhile
                raise SupersededError
            for standing in self._under_way():
                self._lose(standing)
            self._read = self.row.revision
        return self.added(frozenset())

    def is_reopened(self) -> bool:
        """Whether tasks were reset to run again since they were last handed out; `added` has them then."""
        revision = self.row.revision
        if revision == self._read:
            return False
        self._read, self._place, self._whole = revision, 0, False
        return True

    def added(self, known: Collection[int]) -> list[PendingTask]:
        """The next tasks to run, up to PAGE, in the order of the input; none if all were handed out.

        known: positions of tasks that were handed out before and are not over.
        """
        found: list[PendingTask] = []
        while not found and not self._whole:
            page = self._waiting()
            self._whole = len(page) < PAGE
            self._place = page[-1].position if page else self._place
            found = [standing for standing in page if standing.position not in known]
        return found

    def task(self, position: int) -> TaskRow:
        sql = "SELECT kind, work, variables FROM job_work WHERE job_id = ? AND position = ?"
        row = self.database.row(sql, self.job, position)
        if row is None:
            raise SupersededError
        return TaskRow(kind=row["kind"], work=row["work"], variables=row["variables"])

    # -- outcomes --

    def start(self, position: int) -> int:
        """Records that an attempt is about to begin. Returns its number, from 1."""
        with self._fence.writing():
            sql = (
                "UPDATE job_tasks SET state = 'running', attempts = attempts + 1 "
                "WHERE job_id = ? AND position = ? AND state = 'waiting'"
            )
            if not self.database.execute(sql, self.job, position):
                raise SupersededError
            sql = "SELECT attempts FROM job_tasks WHERE job_id = ? AND position = ?"
            row = self.database.row(sql, self.job, position)
            assert row is not None, "it was there a moment ago"
            return int(row["attempts"])

    def unstart(self, position: int) -> None:
        """Undoes `start`: the attempt did not begin, and nothing ran."""
        with self._fence.writing():
            sql = (
                "UPDATE job_tasks SET state = 'waiting', attempts = attempts - 1 "
                "WHERE job_id = ? AND position = ? AND state = 'running'"
            )
            self.database.execute(sql, self.job, position)

    def spend(self, position: int, tokens: int, nanodollars: int) -> None:
        with self._fence.writing():
            sql = (
                "UPDATE job_tasks SET tokens = tokens + ?, nanodollars = nanodollars + ? "
                "WHERE job_id = ? AND position = ?"
            )
            self.database.execute(sql, tokens, nanodollars, self.job, position)

    def end(
        self, position: int, state: Literal["succeeded", "failed", "cancelled"], outcome: TaskOutcome
    ) -> None:
        """Records the end of the task."""
        with self._fence.writing():
            self._write(position, state, outcome)

    def again(self, standing: PendingTask, outcome: TaskOutcome, *, is_lost: bool) -> None:
        """Records that the task is to run once more. is_lost: the outcome of its attempt is unknown."""
        with self._fence.writing():
            self._write(standing.position, "waiting", outcome)
            self._put_back(standing, lost=int(is_lost))

    def end_lost(self, position: int, outcome: TaskOutcome) -> None:
        """Ends a task that was lost too often."""
        with self._fence.writing():
            self._write(position, "failed", outcome)
            sql = "UPDATE job_tasks SET lost = lost + 1 WHERE job_id = ? AND position = ?"
            self.database.execute(sql, self.job, position)

    def wait_for(self, reason: str) -> None:
        """Stores the reason why no task begins; an empty text when one does."""
        if reason == self._told:
            return
        with self._fence.writing():
            self.database.execute("UPDATE jobs SET waiting_for = ? WHERE id = ?", reason, self.job)
        self._told = reason

    def cancel_rest(self) -> None:
        """Cancels the tasks that wait or run, unless they were requested again meanwhile."""
        cancelled = AT_ONCE
        while cancelled == AT_ONCE:
            with self._fence.writing():
                if self.row.wanted != "cancel":
                    return
                cancelled = cancel_some(self.database, self.job)

    def finish(self) -> bool:
        """Ends the job. Returns False if there is more to do."""
        with self._fence.writing():
            sql = "SELECT 1 FROM job_tasks WHERE job_id = ? AND state IN ('waiting', 'running') LIMIT 1"
            if self.database.row(sql, self.job) is not None:
                return False
            state = "cancelled" if self.row.wanted == "cancel" else "done"
            sql = "UPDATE jobs SET state = ?, wanted = '', waiting_for = '', ended = ? WHERE id = ?"
            self.database.execute(sql, state, self.clock(), self.job)
            return True

    # -- inside a transaction --

    def _under_way(self) -> list[PendingTask]:
        sql = "SELECT position, tries, losses, due FROM job_tasks WHERE job_id = ? AND state = 'running'"
        return [PendingTask(**dict(row)) for row in self.database.rows(sql, self.job)]

    def _waiting(self) -> list[PendingTask]:
        sql = (
            "SELECT position, tries, losses, due FROM job_tasks WHERE job_id = ? AND position > ? "
            "AND COALESCE(state, '') = 'waiting' ORDER BY position LIMIT ?"
        )
        return [PendingTask(**dict(row)) for row in self.database.rows(sql, self.job, self._place, PAGE)]

    def _lose(self, before: PendingTask) -> None:
        after = lost(before, self.clock())
        if after is not None:
            self._put_back(after, lost=1)
            return
        self._write(before.position, "failed", TaskOutcome(error=LOST))
        sql = "UPDATE job_tasks SET lost = lost + 1 WHERE job_id = ? AND position = ?"
        self.database.execute(sql, self.job, before.position)

    def _put_back(self, standing: PendingTask, lost: int) -> None:
        sql = (
            "UPDATE job_tasks SET state = 'waiting', tries = ?, losses = ?, due = ?, lost = lost + ? "
            "WHERE job_id = ? AND position = ?"
        )
        values = (standing.tries, standing.losses, standing.due, lost)
        self.database.execute(sql, *values, self.job, standing.position)

    def _write(self, position: int, state: str, outcome: TaskOutcome) -> None:
        before = self._kept(position)
        told, log = self._bounded(outcome, before)
        error = json.dumps(asdict(told.error)) if told.error is not None else ""
        state = "failed" if state == "succeeded" and told.error is not None else state
        sql = "UPDATE job_tasks SET state = ?, duration = ? WHERE job_id = ? AND position = ?"
        self.database.execute(sql, state, told.duration, self.job, position)
        self.database.execute("DELETE FROM job_results WHERE job_id = ? AND position = ?", self.job, position)
        self.database.execute("DELETE FROM job_logs WHERE job_id = ? AND position = ?", self.job, position)
        sql = "INSERT INTO job_results (job_id, position, value, answer, error) VALUES (?, ?, ?, ?, ?)"
        self.database.execute(sql, self.job, position, told.value, told.answer, error)
        if log:
            sql = "INSERT INTO job_logs (job_id, position, text, left_out) VALUES (?, ?, ?, ?)"
            self.database.execute(sql, self.job, position, log, told.left_out)
        more = self._kept(position) - before
        self.database.execute("UPDATE jobs SET kept = kept + ? WHERE id = ?", more, self.job)

    def _kept(self, position: int) -> int:
        """Characters stored for one task."""
        result = (
            "SELECT LENGTH(value) + LENGTH(answer) + LENGTH(error) AS kept FROM job_results "
            "WHERE job_id = ? AND position = ?"
        )
        log = "SELECT LENGTH(text) AS kept FROM job_logs WHERE job_id = ? AND position = ?"
        rows = [self.database.row(sql, self.job, position) for sql in (result, log)]
        return sum(int(row["kept"]) for row in rows if row is not None)

    def _bounded(self, outcome: TaskOutcome, before: int) -> tuple[TaskOutcome, str]:
        """Cuts the outcome and its log to size. before: characters stored for the task, which are replaced."""
        row = self.database.row("SELECT kept FROM jobs WHERE id = ?", self.job)
        kept = 0 if row is None else int(row["kept"]) - before
        if kept + len(outcome.value) + len(outcome.answer) > MAX_KEPT:
            error = outcome.error or FULL
            return TaskOutcome(error=error, duration=outcome.duration), ""
        return outcome, outcome.log if kept + len(outcome.log) <= LOGS_UP_TO else ""


LOST: Final = TaskFailure(
    type="OutcomeUnknownError",
    message="the platform was stopped, or killed, at each attempt; what came of them is not known",
    reason="lost",
    stage="platform",
)

FULL: Final = TaskFailure(
    type="QuotaExceededError",
    message=f"the results and logs of a job have up to {MAX_KEPT >> 20} MiB; submit fewer tasks at once, or have "
    f"them give less",
    reason="full",
    stage="result",
)
