"""What is recorded of a job: each result once, by one process at a time, whatever is killed in between."""

from __future__ import annotations

import json

import pytest

from cenote.gateway.jobs import ledger as ledger_module
from cenote.gateway.jobs import tables
from cenote.gateway.jobs.ledger import JobLedger, TaskFailure, TaskOutcome
from cenote.gateway.jobs.schedule import MAX_LOSSES, PendingTask
from cenote.gateway.jobs.tables import JobTable, JobWorkload, TaskTable
from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants
from cenote.gateway.work.workload import SupersededError
from cenote_proto.v1 import job_pb2
from cenote_security.errors import UnknownEntryError
from cenote_security.ids import JobId, TenantId, new_job_id

BROKEN = TaskFailure(type="ValueError", message="no", reason="exception", stage="task")


def tenant(database: Database) -> TenantId:
    return Tenants(database).create("acme").id


def job(database: Database, count: int) -> JobId:
    """A job of tasks `1`, `2`, ..."""
    owner = tenant(database)
    made = new_job_id()
    JobTable(database).begin(owner, made, b"")
    tasks = [job_pb2.JobTask(id=str(number), code="1") for number in range(1, count + 1)]
    TaskTable(database).add(made, 1, tasks)
    return JobTable(database).complete(owner, made, name="", key="", digest="").id


def results(database: Database, job: JobId) -> list[tuple[str, int, int, int]]:
    """Tasks that are over: id, status, attempts, lost."""
    found = TaskTable(database).results(job, 0, whole=False)
    return [(each.id, each.status, each.attempts, each.lost) for each in found]


def test_what_a_process_leaves_is_done_again_and_says_so(database: Database) -> None:
    """The killed process's results stay; its running attempts count as lost; it can write nothing more."""
    made = job(database, 3)
    former = JobLedger(database, made)
    assert [1, 2, 3] == [standing.position for standing in former.begin()]
    assert [1, 1] == [former.start(1), former.start(2)]
    former.end(1, "succeeded", TaskOutcome(value="7"))
    later = JobLedger(database, made)
    for write in (
        lambda: former.end(2, "succeeded", TaskOutcome()),
        lambda: former.start(3),
        lambda: former.spend(2, 1, 1),
        former.finish,
    ):
        with pytest.raises(SupersededError):
            write()
    assert [(2, 1), (3, 0)] == [(standing.position, standing.losses) for standing in later.begin()]
    assert 2 == later.start(2)
    later.end(2, "failed", TaskOutcome(error=BROKEN))
    assert not later.finish()
    later.start(3)
    later.end(3, "succeeded", TaskOutcome(answer="ok"))
    assert later.finish()
    assert [("1", 0, 1, 0), ("2", 1, 2, 1), ("3", 0, 1, 0)] == results(database, made)
    assert ("done", 2) == ((row := JobTable(database).of_all(made)).state, row.epoch)


def test_a_task_that_takes_its_process_along_each_time(database: Database) -> None:
    """The task fails in the end, with a reason of its own."""
    made = job(database, 1)
    for _ in range(MAX_LOSSES):
        ledger = JobLedger(database, made)
        (standing,) = ledger.begin()
        ledger.start(standing.position)
    ledger = JobLedger(database, made)
    assert [] == ledger.begin()
    assert ledger.finish()
    (result,) = TaskTable(database).results(made, 0, whole=True)
    assert (job_pb2.JobResult.FAILED, MAX_LOSSES, MAX_LOSSES) == (result.status, result.attempts, result.lost)
    assert ("lost", "platform") == (result.error.reason, result.error.stage)


def test_what_did_not_begin_is_no_attempt(database: Database) -> None:
    """It does not count as lost either; a task that is repeated retains its costs."""
    made = job(database, 1)
    ledger = JobLedger(database, made)
    ledger.begin()
    ledger.start(1)
    ledger.unstart(1)
    assert 1 == ledger.start(1)
    ledger.spend(1, 100, 5)
    ledger.again(PendingTask(position=1, tries=1, due=2.0), TaskOutcome(error=BROKEN), is_lost=False)
    assert [] == results(database, made)
    assert [PendingTask(position=1, tries=1, due=2.0)] == JobLedger(database, made).begin()
    assert (100, 5) == JobLedger(database, made).spent()


def test_given_back_while_others_are_done(database: Database) -> None:
    """The running process learns of it once, and the job is not over before."""
    made = job(database, 2)
    ledger = JobLedger(database, made)
    ledger.begin()
    for position in (1, 2):
        ledger.start(position)
        ledger.end(position, "failed", TaskOutcome(error=BROKEN))
    with database.transaction():
        assert 1 == TaskTable(database).renew(made, ["2"])
        JobTable(database).reopen(ledger.row.tenant, made, None)
    assert not ledger.finish()
    assert ledger.is_reopened()
    assert [2] == [standing.position for standing in ledger.added(set())]
    assert ([], False) == (ledger.added(set()), ledger.is_reopened())
    ledger.start(2)
    ledger.end(2, "succeeded", TaskOutcome())
    assert ledger.finish()


def test_cancelled_before_anybody_works_on_it(database: Database) -> None:
    """The job is over at once, and a process that starts too late begins nothing."""
    made = job(database, 2)
    JobTable(database).cancel(JobTable(database).of_all(made).tenant, made)
    assert [("1", 2, 0, 0), ("2", 2, 0, 0)] == results(database, made)
    assert not JobWorkload(database).is_open(made)
    with pytest.raises(SupersededError):
        JobLedger(database, made).begin()


def test_wanted_again_before_it_was_cancelled(database: Database) -> None:
    """The process that works on it stops its tasks; the last request is carried out."""
    made = job(database, 2)
    ledger = JobLedger(database, made)
    ledger.begin()
    ledger.start(1)
    owner = ledger.row.tenant
    JobTable(database).cancel(owner, made)
    ledger.end(1, "cancelled", TaskOutcome())
    with database.transaction():
        assert 1 == TaskTable(database).renewable(made, 0)
        TaskTable(database).renew_between(made, 0, 1)
        JobTable(database).reopen(owner, made, None)
    ledger.cancel_rest()
    assert not ledger.finish()
    assert ledger.is_reopened()
    assert [1, 2] == [standing.position for standing in ledger.added(set())]
    JobTable(database).cancel(owner, made)
    ledger.cancel_rest()
    assert ledger.finish()
    assert "cancelled" == JobTable(database).of_all(made).state


def test_tasks_are_taken_up_by_pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the input, and none that is under way; after a retry from the first one again."""
    monkeypatch.setattr(ledger_module, "PAGE", 2)
    made = job(database, 5)
    ledger = JobLedger(database, made)
    assert [1, 2] == [standing.position for standing in ledger.begin()]
    ledger.start(1)
    ledger.end(1, "failed", TaskOutcome(error=BROKEN))
    assert [3, 4] == [standing.position for standing in ledger.added({2})]
    with database.transaction():
        TaskTable(database).renew(made, ["1"])
        JobTable(database).reopen(ledger.row.tenant, made, None)
    assert ledger.is_reopened()
    assert [1] == [standing.position for standing in ledger.added({2, 3, 4})]
    assert [5] == [standing.position for standing in ledger.added({1, 2, 3, 4})]
    assert [] == ledger.added(set())


def test_a_large_job_is_changed_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out, however the parts fall; one that waits is cancelled by its process."""
    for module in (tables, ledger_module):
        monkeypatch.setattr(module, "AT_ONCE", 2)
    made = job(database, 5)
    owner, tasks = JobTable(database).of_all(made).tenant, TaskTable(database)
    JobTable(database).cancel(owner, made)
    row = JobTable(database).of_all(made)
    assert ("waiting", "cancel") == (row.state, row.wanted)
    ledger = JobLedger(database, made)
    ledger.begin()
    ledger.cancel_rest()
    assert ledger.finish()
    assert "cancelled" == JobTable(database).of_all(made).state
    assert 5 == len(results(database, made))
    places = [0]
    while (end := tasks.renewable(made, places[-1])) > places[-1]:
        with database.transaction():
            tasks.renew_between(made, places[-1], end)
        places.append(end)
    assert ([0, 2, 4, 5], []) == (places, results(database, made))
    JobTable(database).remove(owner, made)
    JobTable(database).clear(made)
    assert [] == database.rows("SELECT * FROM job_tasks")


def test_stuck(database: Database) -> None:
    """The reason why nothing begins is recorded until something does; nothing fails for that."""
    made = job(database, 2)
    before = JobWorkload(database).progress(made)
    JobWorkload(database).stuck(made, "five processes ended")
    assert "five processes ended" == JobTable(database).of_all(made).waiting_for
    assert JobWorkload(database).is_open(made)
    ledger = JobLedger(database, made)
    assert 2 == len(ledger.begin())
    assert "" == JobTable(database).of_all(made).waiting_for
    assert before == JobWorkload(database).progress(made)
    ledger.start(1)
    assert before != JobWorkload(database).progress(made)


def test_bounds_of_what_is_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are dropped first; a result that does not fit is a failure that says so. A result that is written
    again counts once.
    """
    monkeypatch.setattr(ledger_module, "MAX_KEPT", 100)
    monkeypatch.setattr(ledger_module, "LOGS_UP_TO", 50)
    made = job(database, 3)
    ledger = JobLedger(database, made)
    ledger.begin()
    for position in (1, 2, 3):
        ledger.start(position)
    for _ in range(3):
        ledger.again(PendingTask(position=1), TaskOutcome(log="x" * 40), is_lost=False)
    ledger.end(1, "succeeded", TaskOutcome(log="x" * 40))
    ledger.end(2, "succeeded", TaskOutcome(value=json.dumps("y" * 38), log="z" * 11))
    ledger.end(3, "succeeded", TaskOutcome(value=json.dumps("y" * 38)))
    assert ["x" * 40, "", ""] == [TaskTable(database).log(made, name).text for name in "123"]
    one, two, three = TaskTable(database).results(made, 0, whole=True)
    assert (0, 0, 1) == (one.status, two.status, three.status)
    assert ("full", "") == (three.error.reason, three.value)


def test_tasks_are_listed_by_pages_and_states(database: Database) -> None:
    """Without values; an error is there with the beginning of its message."""
    made = job(database, 4)
    ledger, tasks = JobLedger(database, made), TaskTable(database)
    ledger.begin()
    for position in (1, 2, 3):
        ledger.start(position)
    ledger.end(1, "succeeded", TaskOutcome(value="7"))
    ledger.end(
        2,
        "failed",
        TaskOutcome(
            error=TaskFailure(type="ValueError", message="x" * 4_000, reason="exception", stage="task")
        ),
    )
    states = job_pb2.TaskSummary
    assert [states.SUCCEEDED, states.FAILED, states.RUNNING, states.WAITING] == [
        each.state for each in tasks.summaries(made, 0, 10)
    ]
    assert ["2", "3"] == [each.id for each in tasks.summaries(made, 1, 2)]
    (failed,) = tasks.summaries(made, 0, 10, {"failed"})
    assert ("2", "ValueError") == (failed.id, failed.error.type)
    assert len(failed.error.message) < 600
    assert 4_000 == len(tasks.task(made, "2").summary.error.message)
    assert ("1", "7") == ((told := tasks.task(made, "1")).work.code, told.value)
    with pytest.raises(UnknownEntryError):
        tasks.task(made, "5")


def test_failures_are_grouped_by_cause(database: Database) -> None:
    """By type, reason and stage, whatever the messages say; the most frequent cause first. A retried task is none."""
    made = job(database, 9)
    ledger, tasks = JobLedger(database, made), TaskTable(database)
    ledger.begin()
    for position in range(1, 9):
        ledger.start(position)
        kind = "KeyError" if position == 1 else "ValueError"
        error = TaskFailure(type=kind, message=f"of {position}", reason="exception", stage="task")
        ledger.end(position, "failed", TaskOutcome(error=error))
    with database.transaction():
        tasks.renew(made, ["8"])
    found = [(group.error.type, group.tasks, [*group.examples]) for group in tasks.failures(made)]
    assert [("ValueError", 6, ["2", "3", "4", "5", "6"]), ("KeyError", 1, ["1"])] == found
