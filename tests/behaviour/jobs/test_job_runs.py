"""Jobs on a real platform: the results of tasks, whatever is killed, and the limits of tasks."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.workshop import BARE, someone
from tests.support.orchestrator.studio import Studio, code
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote.gateway.audit.reader import entries
from cenote.gateway.work import processes
from cenote.gateway.work.process_unsafe import OrchestratorProcess
from cenote.jobs import BadTasksError, Job, ModelSpec, TaskResult
from cenote.jobs.client import JobTerms
from cenote.team import Budget
from cenote_security.auth.tokens import Scope
from cenote_security.errors import (
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    ScopeMissingError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy

SLOW = "import time\nfor _ in range(200): time.sleep(0.01)\n"
"""Takes two seconds, and longer on a busy or paused machine: tests act meanwhile."""


def by_id(job: Job) -> dict[str, TaskResult]:
    return {result.id: result for result in job.results(follow=True)}


@pytest.mark.slow
def test_what_comes_of_cells(studio: Studio, tmp_path: Path) -> None:
    """A file goes in; values, errors with their kinds and printed output come out, in the order of the input."""
    lines = [
        {"id": "plain", "code": "rows = [n, {'a': shared[1]}]\nprint('seen', n)", "variables": {"n": 1.5}},
        {"code": "1 / 0"},
        {"id": "none", "code": "import json"},
        {"id": "odd", "code": "class Odd: pass\nrows = Odd()"},
        {"id": "slow", "code": "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"},
        {"id": "dies", "code": "import os\nos._exit(3)"},
        {"id": "fresh", "code": "rows = 'rows' in globals(), ready\nrows = list(rows)"},
    ]
    source = tmp_path / "tasks.jsonl"
    source.write_text("\n\n".join(map(json.dumps, lines)))
    platform = studio.connect()
    with platform.runtime("source", sandbox=BARE) as runtime:
        runtime.execute("shared = ['x', 'y' * 5]")
        shared = {"shared": runtime.share("shared")}
        job = platform.jobs.submit(
            source, setup="ready = 7", variables=shared, result="rows", timeout=4, sandbox=BARE
        )
        status = job.wait()
    platform.delete("source")
    assert ("done", 7, 2, 5) == (status.state, status.tasks, status.succeeded, status.failed)
    found = list(job.results())
    assert ["plain", "3", "none", "odd", "slow", "dies", "fresh"] == [result.id for result in found]
    assert [1.5, {"a": "yyyyy"}] == found[0].value
    assert [False, 7] == found[6].value
    told = {each.id: (each.error.type, each.error.reason, each.error.stage) for each in found if each.error}
    assert ("ZeroDivisionError", "exception", "task") == told["3"]
    assert ("UnknownNameError", "result", "result") == told["none"]
    assert ("NotPlainError", "result", "result") == told["odd"]
    assert ("time", "task") == told["slow"][1:]
    assert ("exit", "task") == told["dies"][1:]
    down_to = {each.id: str(each.error.verdict) for each in found if each.error}
    assert {"slow": "limit (time)"} == {
        name: verdict for name, verdict in down_to.items() if verdict != "task"
    }
    assert ("limit", "time") == tuple(found[4].as_data()["error"][name] for name in ("verdict", "limit"))
    assert {1} == {result.attempts for result in found}
    assert "seen 1.5" in job.logs("plain").text
    assert "begun" in job.logs("slow").text
    assert "1 / 0" in job.logs("3").text
    with pytest.raises(UsageError, match="no task 'nobody'"):
        job.logs("nobody")
    assert found[3:5] == [each for each in job.results(after=3) if each.index < 6]
    assert not [each for each in platform.runtimes() if each.name.startswith("job-")]
    job.remove()
    with pytest.raises(UsageError, match="there is no job"):
        job.status()


@pytest.mark.slow
def test_a_result_that_cannot_be_costs_the_work_once(studio: Studio) -> None:
    """Another attempt would give the same again: the error says what to write instead."""
    tasks = [
        {"id": "set", "code": "rows = {1}"},
        {"id": "none", "code": "row = 1"},
        {"id": "own", "code": "class Own: pass\nrows = [Own()]"},
        {"id": "nan", "code": "rows = {'mean': float('nan')}"},
        {"id": "large", "code": "rows = 'x' * 2_000_000"},
        {"id": "day", "code": "import datetime\nrows = {'day': datetime.date(2020, 1, 2), 'at': (1, 2)}"},
    ]
    job = studio.connect().jobs.submit(tasks, result="rows", attempts=3, sandbox=BARE)
    found = by_id(job)
    assert {1} == {result.attempts for result in found.values()}
    assert {"day": "2020-01-02", "at": [1, 2]} == found["day"].value
    assert "use sorted(...)" in str(found["set"].error)
    assert "rows[0] is a Own" in str(found["own"].error)
    assert "take what is needed out of it" in str(found["own"].error)
    assert "rows['mean'] is nan, which JSON does not have; use None" in str(found["nan"].error)
    assert "rows takes 2,000,002 bytes in this form, of up to 1,048,576" in str(found["large"].error)
    assert "no variable named 'rows'" in str(found["none"].error)


def test_records_are_results(studio: Studio) -> None:
    """Of classes that only the task's code knows: each field is what its name says."""
    code = """
import dataclasses, enum, typing
class Colour(enum.Enum):
    RED = "red"
class Point(typing.NamedTuple):
    x: int
    y: Colour
@dataclasses.dataclass
class Row:
    at: Point
    tags: list
rows = Row(Point(1, Colour.RED), [Colour.RED])
"""
    job = studio.connect().jobs.submit([{"id": "row", "code": code}], result="rows", sandbox=BARE)
    assert {"at": [1, "red"], "tags": ["red"]} == by_id(job)["row"].value


@pytest.mark.slow
def test_the_process_is_killed(studio: Studio) -> None:
    """Finished tasks stay as they are, running ones are repeated and say so, the rest is done once."""
    studio.models.script(agent=[code("total = 6 * 7"), "It is 42."])
    gate = studio.models.hold("agent", 2)
    tasks = [{"code": "import random\nrandom.random()"}, {"task": "Multiply"}, {"code": "'last'"}]
    job = studio.connect().jobs.submit(tasks, concurrency=1, model=studio.model("agent"), sandbox=BARE)
    until(lambda: studio.models.calls["agent"] == 2)
    (first,) = job.results()
    kill(studio.only("job"))
    until(lambda: studio.models.calls["agent"] == 4)
    gate.set()
    results = list(job.results(follow=True))
    assert first == results[0]
    assert ["It is 42.", "'last'"] == [result.answer for result in results[1:]]
    assert [(1, 0), (2, 1), (1, 0)] == [(result.attempts, result.lost) for result in results]
    assert results[1].tokens > 0
    assert ("done", 2) == (job.wait().state, job.status().starts)
    log = job.logs("2").text
    assert 1 == log.count("total = 6 * 7")
    until(lambda: not [each for each in studio.connect().runtimes() if each.name.startswith("job-")])
    job.remove()


@pytest.mark.slow
def test_a_process_that_never_gets_any_further(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successors are started at growing intervals, and meanwhile the job says why nothing begins."""
    monkeypatch.setattr("cenote.gateway.work.processes.MAX_FAILURES", 1)
    spawn, ended = processes.spawn, list[OrchestratorProcess]()

    def first_ends_at_once(*given: Any) -> OrchestratorProcess:
        if ended:
            return spawn(*given)
        ended.append(OrchestratorProcess(subprocess.Popen(["false"], stdin=subprocess.PIPE)))
        return ended[0]

    monkeypatch.setattr(processes, "spawn", first_ends_at_once)
    job = studio.connect().jobs.submit([{"code": "'done'"}], sandbox=BARE)
    until(lambda: "without getting any further" in job.status().waiting_for or job.status().over)
    (result,) = job.results(follow=True)
    assert ("'done'", 1, 0) == (result.answer, result.attempts, result.lost)
    assert "" == job.wait().waiting_for
    job.remove()


@pytest.mark.slow
def test_the_runtime_ends_under_its_task(studio: Studio) -> None:
    """What the attempt has done is unknown; it is lost, and does not count as one of the attempts."""
    platform = studio.connect()
    job = platform.jobs.submit([{"code": f"{SLOW}'over'"}], sandbox=BARE)
    names: list[str] = []

    def at_work() -> list[str]:
        names.extend(each.name for each in platform.runtimes() if each.name.startswith("job-") and each.steps)
        return names

    until(at_work)
    platform.delete(names[0])
    (result,) = job.results(follow=True)
    assert ("succeeded", "'over'", 2, 1) == (result.status, result.answer, result.attempts, result.lost)
    job.remove()


@pytest.mark.slow
def test_agents_that_fail_and_the_budget(studio: Studio) -> None:
    """Each agent works by itself; the reason for its end is reported; once the budget is spent none begins. A key
    goes to the model's server and lies in one file.
    """
    studio.models.script(agent=[code("x = 1"), code("y = 2"), "Done."])
    jobs, model = studio.connect().jobs, studio.model("agent")
    tasks = [{"id": name, "task": "Work"} for name in "abc"]
    secret = "sk-" + "hush" * 8
    keyed = studio.model("agent", secret="KEY")
    terms: JobTerms = {"secrets": {"KEY": secret}, "max_steps": 1, "attempts": 2, "backoff": 0.01}
    steps = jobs.submit(tasks[:1], model=keyed, sandbox=BARE, **terms)
    (result,) = steps.results(follow=True)
    assert f"Bearer {secret}" == studio.models.asked[0].headers["authorization"]
    # By another process: one that closes SQLite's files releases the locks that it has on them.
    searched = subprocess.run(["grep", "-rl", secret, str(studio.folder)], capture_output=True, text=True)
    assert [str(studio.folder / "jobs" / steps.id / "secrets")] == searched.stdout.splitlines()
    assert result.error is not None
    assert ("failed", "steps", 2) == (result.status, result.error.reason, result.attempts)
    refused = jobs.submit(tasks[:1], model=studio.model("nobody"), attempts=3, sandbox=BARE)
    (result,) = refused.results(follow=True)
    assert result.error is not None
    assert ("ModelRequestError", "model", 1) == (result.error.type, result.error.reason, result.attempts)
    poor = jobs.submit(tasks, model=model, concurrency=1, budget=Budget(tokens=1), sandbox=BARE)
    results = list(poor.results(follow=True))
    assert ["budget"] * 3 == [each.error.reason for each in results if each.error is not None]
    assert [1, 0, 0] == [each.attempts for each in results]
    poor.retry(["b"], budget=Budget(tokens=100_000))
    status = poor.wait()
    assert (1, 2, 1) == (status.succeeded, status.failed, status.revision)
    results = list(poor.results())
    assert ["failed", "succeeded", "failed"] == [each.status for each in results]
    assert "Done." == results[1].answer
    assert status.tokens == sum(each.tokens for each in results) > 0
    for job in (steps, refused, poor):
        job.remove()


async def test_the_same_submission_again(studio: Studio) -> None:
    """Its key returns the existing job; with other tasks it is refused, as is a name that is taken. Through the
    async calls.
    """
    jobs = studio.connect().jobs
    job = await jobs.async_submit([{"code": "print(1)"}], key="nightly", name="night", sandbox=BARE)
    again = await jobs.async_submit([{"code": "print(1)"}], key="nightly", name="night", sandbox=BARE)
    assert job.id == again.id
    with pytest.raises(UsageError, match="key 'nightly' is that of job 'night'"):
        await jobs.async_submit([{"code": "2"}], key="nightly", sandbox=BARE)
    with pytest.raises(UsageError, match="the job 'night' exists already"):
        await jobs.async_submit([{"code": "print(1)"}], name="night", sandbox=BARE)
    assert [job.id] == [each.id for each in await jobs.async_list() if each.name == "night"]
    assert (await jobs.async_get("night")).id == job.id
    assert ["1"] == [each.id async for each in job.async_results(follow=True)]
    assert "done" == (await job.async_wait()).state == (await job.async_status()).state
    assert "1\n" in (await job.async_logs("1")).text
    assert 0 == (await job.async_retry()).revision
    assert "done" == (await job.async_cancel()).state
    await job.async_remove()
    assert [] == [each for each in jobs.list() if each.name == "night"]
    assert not (studio.folder / "jobs" / job.id).exists()


@pytest.mark.slow
def test_cancelled_and_taken_up_again(studio: Studio) -> None:
    """Finished tasks stay, running ones are interrupted, waiting ones never begin; both are done after the
    resumption."""
    studio.models.script(agent=["Well."])
    gate = studio.models.hold("agent", 1)
    tasks = [{"code": "'kept'"}, {"task": "Wait"}, {"code": "'never'"}]
    job = studio.connect().jobs.submit(tasks, concurrency=1, model=studio.model("agent"), sandbox=BARE)
    until(lambda: studio.models.calls["agent"] == 1)
    job.cancel()
    status = job.wait()
    assert ("cancelled", 1, 2) == (status.state, status.succeeded, status.cancelled)
    assert ["succeeded", "cancelled", "cancelled"] == [each.status for each in job.results(follow=True)]
    gate.set()
    job.retry()
    results = by_id(job)
    assert ["'kept'", "Well.", "'never'"] == [each.answer for each in results.values()]
    assert [1, 2, 1] == [each.attempts for each in results.values()]
    job.remove()


@pytest.mark.slow
def test_the_token_of_a_job_ends_with_it(studio: Studio) -> None:
    """A resumed job gets another one."""
    job = studio.connect().jobs.submit([{"code": "result = 1 / 0"}], result="result", sandbox=BARE)
    folder = studio.folder / "jobs" / job.id
    text = (folder / "token").read_text()
    cenote.connect(studio.address, text).describe()
    job.wait()
    until(lambda: not (folder / "token").exists())
    with pytest.raises(NotAuthenticatedError):
        cenote.connect(studio.address, text).describe()
    job.retry()
    assert text != (folder / "token").read_text()
    assert "ZeroDivisionError" in str(job.wait() and list(job.results()))
    job.remove()


@pytest.mark.slow
def test_a_task_looks_for_no_runtime_that_it_has_ended(studio: Studio) -> None:
    """Each such call would be refused, and recorded."""
    known = len(list(entries(studio.folder / "audit")))
    job = studio.connect().jobs.submit([{"code": "1"}] * 12, sandbox=BARE)
    assert 12 == job.wait().succeeded
    until(lambda: not (studio.folder / "jobs" / job.id / "token").exists())  # its process has ended all
    events = [entry.event for entry in list(entries(studio.folder / "audit"))[known:]]
    created = {event.runtime for event in events if event.kind == "runtime.created"}
    asked = [event for event in events if event.kind == "access"]
    done = Counter(event.facts["action"] for event in asked if event.runtime in created)
    assert (12, {"capability": 12, "delete": 12}) == (len(created), done)
    assert [] == [event.facts for event in asked if not event.facts["allowed"]]


@pytest.mark.slow
def test_tasks_wait_for_quotas(studio: Studio) -> None:
    """Of four runtimes three are for jobs, so that the tenant has one besides; where it uses all, tasks wait and say
    why. What could never run is refused.
    """
    platform = someone(studio, "small", runtimes=4, cells=1)
    assert platform.jobs.list() == []
    held = [platform.runtime(f"own-{number}", sandbox=BARE) for number in range(4)]
    job = platform.jobs.submit([{"code": f"{number}"} for number in range(5)], concurrency=5, sandbox=BARE)
    until(lambda: "quota" in job.status().waiting_for)
    assert (0, 0) == (job.status().over, job.status().running)
    for runtime in held:
        runtime.close()
        platform.delete(str(runtime.name))
    assert ["0", "1", "2", "3", "4"] == [each.answer for each in job.results(follow=True)]
    assert {(1, 0)} == {(each.attempts, each.lost) for each in job.results()}
    assert "" == job.wait().waiting_for
    job.remove()
    with pytest.raises(QuotaExceededError, match="smaller `sandbox`"):
        someone(studio, "tiny", memory=2**20).jobs.submit([{"code": "1"}], sandbox=BARE)


@pytest.mark.slow
def test_two_tenants(studio: Studio) -> None:
    """Another tenant's job looks like one that does not exist, by name and by id, in every request."""
    mine = studio.connect().jobs.submit([{"id": "t", "code": "'mine'"}], name="same", key="k", sandbox=BARE)
    other = someone(studio, "rival").jobs
    for name in ("same", mine.id):
        with pytest.raises(UsageError, match="there is no job"):
            other.get(name)
    stolen = Job(other._client, mine.id, "same")
    asked = (stolen.status, stolen.cancel, stolen.retry, stolen.remove, lambda: stolen.logs("t"))
    for ask in (*asked, lambda: list(stolen.results(follow=True))):
        with pytest.raises(UsageError, match="there is no job"):
            ask()
    theirs = other.submit([{"code": "'theirs'"}], name="same", key="k", sandbox=BARE)
    assert ["'theirs'"] == [each.answer for each in theirs.results(follow=True)]
    assert [theirs.id] == [each.id for each in other.list()]
    assert "done" == mine.wait().state
    assert ["'mine'"] == [each.answer for each in mine.results()]
    mine.remove()
    theirs.remove()
    blind = someone(studio, "scoped", Scope.TEAMS, Scope.RUNTIMES_WRITE, Scope.RUNTIMES_READ).jobs
    for attempt in (blind.list, lambda: blind.get(mine.id), lambda: blind.submit([{"code": "1"}])):
        with pytest.raises(ScopeMissingError, match="jobs"):
            attempt()


def test_what_is_refused_before_anything_runs(studio: Studio) -> None:
    """All wrong lines, at once; then nothing of the submission is left."""
    jobs = studio.connect().jobs
    before = jobs.list()
    wrong = [
        {"code": "1", "id": "a"},
        {"id": "a", "code": "1"},
        {"task": "x"},
        {"code": "1", "task": "x"},
        {"code": " "},
        {"kode": "1"},
        {"code": "1", "variables": {"not one": 1}},
        {"code": "1", "variables": {"n": float("nan")}},
        "text",
        {"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}},
    ]
    with pytest.raises(BadTasksError) as caught:
        jobs.submit(wrong)  # type: ignore[arg-type]
    assert [2, 3, 4, 5, 6, 7, 8, 9, 10] == [line.line for line in caught.value.lines]
    assert "line 2: the id 'a' is that of line 1 too" in str(caught.value)
    assert "line 6: it has 'kode'" in str(caught.value)
    assert "line 10: this is a line of OpenAI's batch format" in str(caught.value)
    for terms, error, text in (
        ({"attempts": 11}, UsageError, "attempts is a whole number from 1 to 10, not 11"),
        ({"concurrency": 1001}, UsageError, "concurrency is a whole number from 1 to 1000, not 1001"),
        ({"timeout": -1.0}, UsageError, "timeout is a positive number of seconds of at most 86400"),
        ({"result": "a b"}, UsageError, "no name for a variable"),
        ({"budget": Budget(agents=2)}, UsageError, "budget of a job has no agents"),
        ({"sandbox": SandboxPolicy(isolation="none")}, RejectedError, "weaker walls"),
        ({"model": ModelSpec(name="m", base_url="http://10.0.0.1")}, RejectedError, "sends nothing to"),
        ({"name": "jb_mine"}, UsageError, "given by the platform"),
        ({"retries": 3}, UsageError, "a job has no 'retries'"),
    ):
        with pytest.raises(error, match=text):
            jobs.submit([{"code": "1"}], **terms)  # type: ignore[typeddict-item]
    assert before == jobs.list()
