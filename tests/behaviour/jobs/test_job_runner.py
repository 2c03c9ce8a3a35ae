"""What the process that works on a job records when it is cancelled in the middle."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.waiting import until_async

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.jobs import ledger, runner, schedule
from cenote.gateway.jobs.attempt import AttemptResult
from cenote.gateway.jobs.ledger import JobLedger, TaskFailure, TaskOutcome, TaskRow
from cenote.gateway.jobs.tables import JobTable, TaskTable
from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants
from cenote_proto.v1 import job_pb2
from cenote_security.ids import JobId, new_job_id


class NoRuntimes:
    """For attempts that need no runtimes."""

    async def clear(self) -> None:
        pass

    async def room(self) -> int:
        return 16

    def make(self, position: int, attempt: int) -> None:
        pass

    async def end(self, runtime: None) -> None:
        pass


class Endless:
    """An attempt that runs until it is cancelled."""

    def __init__(self, *_given: object) -> None:
        pass

    async def carry_out(self) -> Any:
        await asyncio.Event().wait()


def submitted(database: Database, definition: job_pb2.JobDefinition, tasks: int = 2) -> JobId:
    owner, job = Tenants(database).create("acme").id, new_job_id()
    JobTable(database).begin(owner, job, definition.SerializeToString())
    TaskTable(database).add(
        job, 1, [job_pb2.JobTask(id=str(number), code=str(number)) for number in range(1, tasks + 1)]
    )
    return JobTable(database).complete(owner, job, name="", key="", digest="").id


def states(database: Database, job: JobId) -> list[str]:
    rows = database.rows("SELECT state FROM job_tasks WHERE job_id = ? ORDER BY position", job)
    return [row["state"] for row in rows]


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A database, a job in it with both of its tasks about to start, and the worker of the job."""
    monkeypatch.setattr(runner, "TaskAttempt", Endless)
    with Database(tmp_path / "gateway.db") as database:
        definition = job_pb2.JobDefinition(concurrency=2, attempts=1)
        job = submitted(database, definition)
        book, none = JobLedger(database, job), threading.Event()
        yield database, job, runner._Work(database, book, definition, NoRuntimes(), {}, none)  # type: ignore[arg-type]


def test_a_database_that_was_away_cancels_nothing(working: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may be back before all running tasks have been cancelled: they are to be repeated."""
    database, job, work = working
    added = JobLedger.added

    def away(book: JobLedger, known: set[int]) -> Any:
        if states(database, job) == ["running", "running"]:
            raise DatabaseUnavailableError("here", "it is away")
        return added(book, known)

    monkeypatch.setattr(JobLedger, "added", away)
    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(work.carry_out())
    assert ["running", "running"] == states(database, job)
    assert [1, 2] == [standing.position for standing in JobLedger(database, job).begin()]


def test_a_wish_to_cancel(working: Any) -> None:
    """It also stops running tasks."""
    database, job, work = working

    async def cancelled() -> None:
        carrying = asyncio.create_task(work.carry_out())
        await until_async(lambda: states(database, job) == ["running", "running"])
        row = JobTable(database).of_all(job)
        JobTable(database).cancel(row.tenant, job)
        await carrying

    asyncio.run(cancelled())
    assert ["cancelled", "cancelled"] == states(database, job)
    assert "cancelled" == JobTable(database).of_all(job).state


class Brief:
    """An attempt that fails once, and then succeeds."""

    seen: ClassVar[set[str]] = set()

    def __init__(self, _runtime: object, _definition: object, row: TaskRow, *_given: object) -> None:
        self._work = row.work

    async def carry_out(self) -> AttemptResult:
        if self._work in self.seen:
            return AttemptResult(verdict="over", outcome=TaskOutcome(answer="done"))
        self.seen.add(self._work)
        failure = TaskFailure(type="ValueError", message="", reason="exception", stage="task")
        return AttemptResult(verdict="failed", outcome=TaskOutcome(error=failure))


def test_a_process_holds_a_part_of_a_large_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tasks wait, and though each one is tried twice; each is over in the end."""
    monkeypatch.setattr(runner, "TaskAttempt", Brief)
    monkeypatch.setattr(Brief, "seen", set())
    monkeypatch.setattr(ledger, "PAGE", 8)
    monkeypatch.setattr(schedule, "MAX_WAITING", 12)
    held: list[int] = []
    added = JobLedger.added

    def counted(self: JobLedger, known: set[int]) -> Any:
        page = added(self, known)
        held.append(len(known) + len(page))
        return page

    monkeypatch.setattr(JobLedger, "added", counted)
    with Database(tmp_path / "gateway.db") as database:
        definition = job_pb2.JobDefinition(concurrency=2, attempts=2, backoff=0.001)
        job = submitted(database, definition, tasks=100)
        work = runner._Work(
            database,
            JobLedger(database, job),
            definition,
            NoRuntimes(),
            {},
            threading.Event(),  # type: ignore[arg-type]
        )
        asyncio.run(work.carry_out())
        assert ["succeeded"] * 100 == states(database, job)
    assert max(held) <= 12 + 8 + 2


def test_as_many_tasks_are_under_way_as_machines_have_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than sixteen where there are machines for it, and more again when another one joins."""
    monkeypatch.setattr(runner, "TaskAttempt", Endless)
    monkeypatch.setattr(runner, "COUNT_EVERY", 0.05)
    places = [20]

    class Machines(NoRuntimes):
        async def room(self) -> int:
            return places[0]

    with Database(tmp_path / "gateway.db") as database:
        definition = job_pb2.JobDefinition(concurrency=30, attempts=1)
        job = submitted(database, definition, tasks=40)
        book, none = JobLedger(database, job), threading.Event()
        work = runner._Work(database, book, definition, Machines(), {}, none)  # type: ignore[arg-type]

        def under_way() -> int:
            return states(database, job).count("running")

        async def carried_out() -> None:
            carrying = asyncio.create_task(work.carry_out())
            await until_async(lambda: under_way() == 20)
            places[0] = 100
            await until_async(lambda: under_way() == 30)  # the job's own limit
            row = JobTable(database).of_all(job)
            JobTable(database).cancel(row.tenant, job)
            await carrying

        asyncio.run(carried_out())
