"""How jobs are created and removed at the gateway, by misbehaving clients, and when a gateway is killed meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.gateway.world import World
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Scripts, Studio
from tests.waiting import until

from cenote.gateway.api.runtime_registry import RuntimeRegistry
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.reader import EntrySelection, selected
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.jobs.registry import KEPT, JobRegistry
from cenote.gateway.jobs.tables import JobRow
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Quota
from cenote.jobs import BadTasksError, checks
from cenote_proto.v1 import job_pb2
from cenote_proto.v1.job_pb2_grpc import JobServiceStub
from cenote_security.errors import QuotaExceededError, RejectedError, UnknownEntryError, UsageError

Part = job_pb2.SubmitJobRequest


def head(**settings: object) -> Part:
    return Part(head=job_pb2.JobHead(**settings))  # type: ignore[arg-type]


def tasks(*codes: str, **settings: object) -> Part:
    made = [job_pb2.JobTask(code=code, **settings) for code in codes]  # type: ignore[arg-type]
    return Part(tasks=job_pb2.JobTasks(tasks=made))


def end(count: int) -> Part:
    return Part(end=job_pb2.JobEnd(tasks=count))


def broken_off() -> Iterator[Part]:
    yield head()
    yield tasks("1", "2")
    raise ConnectionError("the client is gone")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "begins with what all tasks have in common"),
        ([tasks("1")], "begins with what all tasks have in common"),
        ([head(), head()], "has tasks alone"),
        ([head(), end(0)], "at least one task"),
        ([head(), tasks("1"), end(2)], "1 tasks came, of 2"),
        ([head(), tasks("1", ""), end(2)], "line 0: it has neither|of the tasks cannot be run"),
        ([head(), tasks("1", variables="[" * 100_000), end(1)], "variables"),
        ([head(), tasks("1", id="x\n"), end(1)], "printable"),
        ([head(key="k" * 201), tasks("1"), end(1)], "a key has at most"),
        ([head(name="../etc"), tasks("1"), end(1)], "no name for a job"),
        (
            [head(definition=job_pb2.JobDefinition(timeout=float("nan"))), tasks("1")],
            "timeout is a positive number of seconds",
        ),
    ],
)
def test_what_no_client_of_ours_sends(studio: Studio, parts: list[Part], said: str) -> None:
    """It is refused with its reason, and nothing is left of it."""
    before = counts(studio)
    with grpc.insecure_channel(studio.address) as channel, pytest.raises(grpc.RpcError, match=said) as caught:
        JobServiceStub(channel).SubmitJob(iter(parts), metadata=token(studio))
    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()  # type: ignore[attr-defined]
    until(lambda: before == counts(studio))


def test_a_client_that_is_gone_in_the_middle(studio: Studio) -> None:
    """What has arrived is dropped. To the platform, such a client may look like one that has sent everything."""
    before = counts(studio)
    with grpc.insecure_channel(studio.address) as channel:
        for parts in (broken_off(), iter([head(), tasks("1", "2")])):
            with pytest.raises(grpc.RpcError):
                JobServiceStub(channel).SubmitJob(parts, metadata=token(studio))
    until(lambda: before == counts(studio))


def counts(studio: Studio) -> list[int]:
    return [count(studio, table) for table in ("job_tasks", "jobs")]


def token(studio: Studio) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {studio.connect()._destination.token}"),)


def count(studio: Studio, table: str) -> int:
    with closing(sqlite3.connect(studio.folder / "gateway.db")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.slow
def test_the_gateway_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one continues the job, drops what was arriving, and finishes a deletion that was in progress."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Scripts() as models:
        studio = Studio(tmp_path / "state", models).open()
        try:
            models.script(agent=["Well."])
            gate = models.hold("agent", 1)
            jobs = studio.connect().jobs
            parts = [{"code": "'kept'"}, {"task": "Go on"}]
            job = jobs.submit(parts, concurrency=1, model=studio.model("agent"), sandbox=BARE)
            until(lambda: models.calls["agent"] == 1)
            studio.close()
            with closing(sqlite3.connect(tmp_path / "state" / "gateway.db")) as database, database:
                columns = "SELECT tenant_id, 'jb_x', 'half', definition, 'arriving', created FROM jobs"
                names = "tenant_id, id, name, definition, state, created"
                database.execute(f"INSERT INTO jobs ({names}) {columns}")
                database.execute("INSERT INTO job_tasks (job_id, position, name) VALUES ('jb_gone', 1, '1')")
                database.execute("INSERT INTO job_work VALUES ('jb_gone', 1, 'code', '', '')")
            gate.set()
            studio.open()
            job = studio.connect().jobs.get(job.id)
            found = [(each.answer, each.attempts, each.lost) for each in job.results(follow=True)]
            assert [("'kept'", 1, 0), ("Well.", 2, 1)] == found
            tables = ("jobs", "job_tasks", "job_work")
            until(lambda: [1, 2, 2] == [count(studio, table) for table in tables])
        finally:
            studio.close()


class Nobody:
    """Works on no job. See Orchestrators."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    def begin(self, address: str, authority: str) -> None: ...

    def ensure(self, work: str) -> None:
        self.wanted.append(work)

    def settle(self, work: str, patience: float) -> None: ...

    def close(self, *, orderly: bool = True) -> None: ...


class Desk:
    """A registry without a server, and a caller."""

    def __init__(self, world: World) -> None:
        self.now = 1_000.0
        runtimes = RuntimeRegistry(world.stores, world.nodes)
        self.nobody = Nobody()
        self.jobs = JobRegistry(world.stores, world.state, runtimes, self.nobody, clock=lambda: self.now)
        user = world.user("acme", ["jobs"])
        self.principal: Principal = world.stores.tokens.authenticate(user.token)
        self.stores = world.stores

    def submit(self, key: str = "", **settings: object) -> str:
        made = self.jobs.begin(self.principal, job_pb2.JobHead(key=key, **settings))  # type: ignore[arg-type]
        self.jobs.add(made, tasks("1", "2").tasks.tasks)
        try:
            return self.jobs.complete(made, 2).id
        except BaseException:
            self.jobs.discard(made)
            raise


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    world = World(tmp_path)
    yield Desk(world)
    world.close()


def test_bounds_of_jobs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is admitted, the next one is refused with the reason; a refused one uses no quota."""
    desk.stores.quotas.set_limit(desk.principal.tenant, Quota.JOBS, 2)
    first = desk.submit()
    with pytest.raises(UsageError, match="is no name"):
        desk.submit(name="a b")
    second = desk.submit()
    with pytest.raises(QuotaExceededError, match="quota of jobs"):
        desk.submit()
    desk.jobs.delete(desk.principal, first)
    monkeypatch.setattr("cenote.gateway.jobs.registry.MAX_OPEN", 1)
    with pytest.raises(RejectedError, match="1 jobs that are not over"):
        desk.submit()
    desk.jobs.cancel(desk.principal, second)
    assert desk.submit()


def test_a_refusal_of_a_job_says_all_that_is_wrong(desk: Desk) -> None:
    """Its name, its numbers, its sandbox."""
    definition = job_pb2.JobDefinition(concurrency=5000, attempts=99, result="a b")
    definition.sandbox.memory = 1
    with pytest.raises(UsageError, match="5 things are wrong") as caught:
        desk.submit(name="jb_mine", definition=definition)
    for part in (
        "given by the platform",
        "64 MiB",
        "concurrency is a whole number from 1 to 1000",
        "attempts is a whole number from 1 to 10",
        "no name for a variable",
    ):
        assert part in str(caught.value)


def test_a_job_of_which_nobody_knows_whether_it_is_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database failed as the job was recorded. A repeated submission has it worked on."""
    complete, stores = desk.stores.jobs.complete, desk.stores

    def away(*given: Any, **more: Any) -> JobRow:
        complete(*given, **more)
        monkeypatch.setattr(stores.jobs, "remove", _away)
        raise DatabaseUnavailableError("here", "it is away")

    with monkeypatch.context() as patch:
        patch.setattr(stores.jobs, "complete", away)
        with pytest.raises(DatabaseUnavailableError):
            desk.submit(key="k")
    monkeypatch.undo()
    assert [] == desk.nobody.wanted
    assert [desk.submit(key="k")] == desk.nobody.wanted


def _away(*_given: object) -> None:
    raise DatabaseUnavailableError("here", "it is away")


def test_what_could_not_be_cleared_is_cleared_later(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is gone for the client that deleted it, which cannot ask again."""
    forget, tenant, former = desk.stores.tokens.forget, desk.principal.tenant, desk.submit()
    tokens = len(desk.stores.tokens.of(tenant))

    def away(*_given: object) -> None:
        monkeypatch.setattr(desk.stores.tokens, "forget", forget)
        raise DatabaseUnavailableError("here", "it is away")

    monkeypatch.setattr(desk.stores.tokens, "forget", away)
    with pytest.raises(DatabaseUnavailableError):
        desk.jobs.delete(desk.principal, former)
    desk.jobs.clear_old()
    assert tokens - 1 == len(desk.stores.tokens.of(tenant))
    assert 0 == desk.stores.quotas.used(tenant)[Quota.JOBS]
    assert [] == desk.stores.database.rows("SELECT * FROM job_tasks")


def test_the_same_key_at_once(desk: Desk) -> None:
    """The submission that completes second gets the first one's job."""
    wanted = job_pb2.JobHead(key="k")
    one, two = (desk.jobs.begin(desk.principal, wanted) for _ in range(2))
    for made in (one, two):
        desk.jobs.add(made, tasks("1").tasks.tasks)
    known = desk.jobs._known
    desk.jobs._known = lambda submission: None  # type: ignore[method-assign]  (both look before either is whole)
    first = desk.jobs.complete(one, 1)
    calls = iter([lambda _: None, known])
    desk.jobs._known = lambda submission: next(calls)(submission)  # type: ignore[method-assign]
    assert first.id == desk.jobs.complete(two, 1).id
    assert [first.id] == desk.stores.jobs.ids()
    assert 1 == desk.stores.quotas.used(desk.principal.tenant)[Quota.JOBS]


def test_a_client_that_is_gone_when_all_has_come(desk: Desk) -> None:
    """It did not learn that the job exists. Its repeated submission returns that job, with its progress."""
    wanted = job_pb2.JobHead(key="k")
    made = desk.jobs.begin(desk.principal, wanted)
    desk.jobs.add(made, tasks("1", "2").tasks.tasks)
    job = desk.jobs.complete(made, 2)
    desk.jobs.discard(made)  # as a cancelled call does
    assert job.id == desk.submit("k")
    assert 1 == desk.stores.quotas.used(desk.principal.tenant)[Quota.JOBS]


def test_too_many_tasks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for too many bytes of tasks; at the limit both are accepted."""
    assert checks.MAX_TASK < checks.MAX_INPUT
    monkeypatch.setattr("cenote.jobs.checks.MAX_TASKS", 2)
    assert desk.submit()
    made = desk.jobs.begin(desk.principal, job_pb2.JobHead())
    with pytest.raises(UsageError, match="up to 2 tasks"):
        desk.jobs.add(made, tasks("1", "2", "3").tasks.tasks)
    monkeypatch.setattr("cenote.jobs.checks.MAX_INPUT", 1)
    made = desk.jobs.begin(desk.principal, job_pb2.JobHead())
    with pytest.raises(UsageError, match="share larger data"):
        desk.jobs.add(made, tasks("1").tasks.tasks)


def test_a_large_job_is_not_counted_at_each_question(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing but its tasks changes, and for a part of the time; its end shows at once."""
    monkeypatch.setattr("cenote.gateway.jobs.registry.COUNTED_EACH_TIME", 1)
    monkeypatch.setattr("cenote.gateway.jobs.registry.COUNTING_SHARE", 1e9)
    job, counts, count = desk.submit(), [], desk.stores.job_tasks.sums
    monkeypatch.setattr(desk.stores.job_tasks, "sums", lambda job: counts.append(job) or count(job))
    for _ in range(3):
        assert 2 == desk.jobs.described(desk.jobs.find(desk.principal, job)).counts.waiting
    assert [job] == counts
    desk.jobs.cancel(desk.principal, job)
    assert 2 == desk.jobs.described(desk.jobs.find(desk.principal, job)).counts.cancelled


def test_an_id_that_was_there_in_an_earlier_message(desk: Desk) -> None:
    """All are named by their lines, and nothing is left of the submission."""
    made = desk.jobs.begin(desk.principal, job_pb2.JobHead())
    for line, name in enumerate(["a", "b", "a", "c", "b"], 1):
        task = job_pb2.JobTask(id=name, code="1", line=line)
        desk.jobs.add(made, [task])
    with pytest.raises(BadTasksError) as caught:
        desk.jobs.complete(made, 5)
    assert [(3, "the id 'a' is that of another line too"), (5, "the id 'b' is that of another line too")] == [
        (bad.line, bad.reason) for bad in caught.value.lines
    ]
    desk.jobs.discard(made)
    for table in ("jobs", "job_tasks", "job_work"):
        assert [] == desk.stores.database.rows(f"SELECT * FROM {table}")


def test_all_failed_tasks_of_a_large_job_run_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several transactions, and each task once."""
    monkeypatch.setattr("cenote.gateway.jobs.tables.AT_ONCE", 2)
    made = desk.jobs.begin(desk.principal, job_pb2.JobHead())
    desk.jobs.add(made, tasks("1", "2", "3", "4", "5").tasks.tasks)
    job = desk.jobs.complete(made, 5).id
    database = desk.stores.database
    database.execute("UPDATE job_tasks SET state = 'failed' WHERE position <> 2")
    database.execute("UPDATE job_tasks SET state = 'succeeded' WHERE position = 2")
    database.execute("UPDATE jobs SET state = 'done'")
    again = desk.jobs.retry(desk.principal, job_pb2.RetryRequest(job=job))
    assert "waiting" == again.state
    counts = desk.jobs.described(again).counts
    assert (4, 1, 0) == (counts.waiting, counts.succeeded, counts.failed)


def test_kept_for_a_while(desk: Desk) -> None:
    """A month after its end a job is removed, with its folder and its part of the quota, and not a moment before."""
    job = desk.submit()
    desk.jobs.cancel(desk.principal, job)
    ended = desk.jobs.find(desk.principal, job).ended
    assert ended + KEPT == desk.jobs.described(desk.jobs.find(desk.principal, job)).expires
    desk.now = ended + KEPT
    desk.jobs.clear_old()
    assert job == desk.jobs.find(desk.principal, job).id
    desk.now += 1
    desk.jobs.clear_old()
    with pytest.raises(UnknownEntryError):
        desk.jobs.find(desk.principal, job)
    assert 0 == desk.stores.quotas.used(desk.principal.tenant)[Quota.JOBS]


def test_what_is_on_record(desk: Desk, tmp_path: Path) -> None:
    """Who submitted, stopped, resumed and removed a job, and the token that it was given."""
    job = desk.submit()
    for ask in (desk.jobs.cancel, desk.jobs.delete):
        ask(desk.principal, job)
        if ask == desk.jobs.cancel:
            desk.jobs.retry(desk.principal, job_pb2.RetryRequest(job=job))
    files = log_files(tmp_path / "state" / "audit")
    events = [entry.event for entry in selected(files, EntrySelection())]
    done = [event.facts["action"] for event in events if event.kind == "access"]
    assert ["job.submit", "job.cancel", "job.retry", "job.delete"] == done
    assert {desk.principal.tenant} == {event.tenant for event in events if event.kind in ("access", "token")}
    changes = [event.facts["change"] for event in events if event.kind == "token"]
    assert ["issued", "ended", "issued", "ended"] == changes


def test_a_job_that_is_over_has_no_token_and_counts_in_no_quota(desk: Desk) -> None:
    """Its results stay. When resumed it gets both again, and is refused if the quota is used up."""
    tenant, tokens = desk.principal.tenant, desk.stores.tokens
    before = {token.id for token in tokens.of(tenant)}
    desk.stores.quotas.set_limit(tenant, Quota.JOBS, 1)
    first = desk.submit()
    (former,) = {token.id for token in tokens.of(tenant)} - before
    desk.stores.database.execute("UPDATE jobs SET state = 'done' WHERE id = ?", first)  # as its process does
    second = desk.submit()
    assert 1 == desk.stores.quotas.used(tenant)[Quota.JOBS]
    (given,) = {token.id for token in tokens.of(tenant)} - before
    assert former != given
    desk.stores.database.execute("UPDATE job_tasks SET state = 'failed' WHERE job_id = ?", first)
    with pytest.raises(QuotaExceededError, match="wait until some are over"):
        desk.jobs.retry(desk.principal, job_pb2.RetryRequest(job=first))
    assert "done" == desk.jobs.find(desk.principal, first).state
    desk.jobs.cancel(desk.principal, second)
    assert (set(), 0) == (
        {token.id for token in tokens.of(tenant)} - before,
        desk.stores.quotas.used(tenant)[Quota.JOBS],
    )
    assert "waiting" == desk.jobs.retry(desk.principal, job_pb2.RetryRequest(job=first)).state
    assert (1, 1) == (len(tokens.of(tenant)) - len(before), desk.stores.quotas.used(tenant)[Quota.JOBS])


def test_a_job_with_nothing_to_do_again_stays_over(desk: Desk) -> None:
    """A request without effect uses no quota."""
    job, tenant = desk.submit(), desk.principal.tenant
    desk.stores.database.execute("UPDATE jobs SET state = 'done' WHERE id = ?", job)
    desk.stores.database.execute("UPDATE job_tasks SET state = 'succeeded' WHERE job_id = ?", job)
    assert "done" == desk.jobs.retry(desk.principal, job_pb2.RetryRequest(job=job)).state
    desk.jobs.clear_old()
    assert 0 == desk.stores.quotas.used(tenant)[Quota.JOBS]
