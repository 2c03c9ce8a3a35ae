"""What the process that works on a job records when it is cancelled in the middle."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until_async

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.jobs import runner
from cenote.gateway.jobs.ledger import JobLedger
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
        job, 1, [job_pb2.JobTask(id=str(number), code="1") for number in range(1, tasks + 1)]
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
        ledger, none = JobLedger(database, job), threading.Event()
        yield database, job, runner._Work(database, ledger, definition, NoRuntimes(), {}, none)  # type: ignore[arg-type]


def test_a_database_that_was_away_cancels_nothing(working: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may be back before all running tasks have been cancelled: they are to be repeated."""
    database, job, work = working
    added = JobLedger.added

    def away(ledger: JobLedger, known: set[int]) -> Any:
        if states(database, job) == ["running", "running"]:
            raise DatabaseUnavailableError("here", "it is away")
        return added(ledger, known)

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
        ledger, none = JobLedger(database, job), threading.Event()
        work = runner._Work(database, ledger, definition, Machines(), {}, none)  # type: ignore[arg-type]

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
