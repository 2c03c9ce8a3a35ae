"""A job on its own cluster: the actor that works on it is killed, and then the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote

pytestmark = pytest.mark.xdist_group("cluster")

SLOW = "import time\nfor _ in range(300): time.sleep(0.01)\nprint('over')"
"""Takes three seconds, and longer on a busy or paused machine: a process is killed meanwhile."""


@pytest.mark.slow
def test_killed_over_its_tasks(platform: StandingPlatform, tmp_path: Path) -> None:
    """The submitting client has left, and the client that waits is killed. The actor is replaced, and repeats the
    tasks that were running; it is killed together with the gateway, and waits for the next one. Each task has one
    result.
    """
    here = cenote.connect(platform.address, platform.token)
    tasks = [{"code": "'first'"}, {"code": f"{SLOW}\n'second'"}, {"code": f"{SLOW}\n'third'"}]
    source = tmp_path / "tasks.jsonl"
    source.write_text("\n".join(map(json.dumps, tasks)))
    options = ("--concurrency", "1", "--memory", "256MiB", "--name", "survivor")
    assert "survivor\n" == platform.command("job", "submit", str(source), *options).stdout
    job = here.jobs.get("survivor")
    waiting = platform.begin("job", "wait", "survivor")
    until(lambda: at_work(here, "-2-1-"))
    (first,) = job.results()
    kill(*actors(platform), waiting.pid)
    waiting.communicate()
    until(lambda: at_work(here, "-3-1-"))
    gateway = platform.gateway
    kill(gateway, *actors(platform))
    until(lambda: gateway != platform.gateway and platform.answers)
    results = list(job.results(follow=True))
    assert first == results[0]
    assert ["'first'", "'second'", "'third'"] == [result.answer for result in results]
    assert [(1, 0), (2, 1)] == [(result.attempts, result.lost) for result in results[:2]]
    assert (2, 1) == (results[2].attempts, results[2].lost)
    assert ("done", 3) == (job.wait().state, job.status().starts)
    job.remove()
    assert [] == list((platform.state / "jobs").iterdir())
    until(lambda: not platform.processes("ray::OrchestratorActor"))  # otherwise the next test finds it
    assert not [each for each in here.runtimes() if each.name.startswith("job-")]


def actors(platform: StandingPlatform) -> list[int]:
    """Whichever kind has the job, and the spare."""
    return [pid for kind in ("OrchestratorActor", "SpareActor") for pid in platform.processes(f"ray::{kind}")]


def at_work(here: cenote.Platform, attempt: str) -> bool:
    return any(attempt in runtime.name and runtime.steps for runtime in here.runtimes())
