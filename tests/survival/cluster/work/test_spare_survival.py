"""The process that is ready for the next job is killed, and the gateway with it: no job is lost, or done twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote_security.policy import SandboxPolicy

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.slow]

BARE = SandboxPolicy(preload=(), memory="256MiB")


@pytest.fixture(autouse=True)
def removed(platform: StandingPlatform) -> Iterator[None]:
    """The jobs of each test, which others of this folder do not expect."""
    yield
    jobs = cenote.connect(platform.address, platform.token).jobs
    for job in jobs.list():
        jobs.get(job.id).remove()


def spare(platform: StandingPlatform, here: cenote.Platform, former: int = 0) -> int:
    """The process that is ready, after some job; another one than the former."""
    first = here.jobs.submit([{"code": "import time\nwhile True: time.sleep(0.01)"}], sandbox=BARE)
    until(lambda: at_work(here) and len(actors(platform)) == 2)  # the job's own, and that for the next one
    first.remove()
    (ready,) = until(lambda: found if (found := spares(platform)) and found == actors(platform) else None)
    assert former != ready
    return ready


def spares(platform: StandingPlatform) -> list[int]:
    return platform.processes("ray::SpareActor")


def actors(platform: StandingPlatform) -> list[int]:
    return [*platform.processes("ray::OrchestratorActor"), *spares(platform)]


def at_work(here: cenote.Platform) -> bool:
    return any(runtime.name.startswith("job-") and runtime.steps for runtime in here.runtimes())


def test_killed_while_it_waits(platform: StandingPlatform) -> None:
    """Another one is made. A job that was given to the dead one is done, once."""
    here = cenote.connect(platform.address, platform.token)
    ready = spare(platform, here)
    kill(ready)
    job = here.jobs.submit([{"code": "'a'"}], sandbox=BARE)
    assert "done" == job.wait(60.0).state
    assert [("'a'", 1, 0)] == [(each.answer, each.attempts, each.lost) for each in job.results()]
    assert ready != spare(platform, here, ready)


def test_killed_before_its_first_task(platform: StandingPlatform) -> None:
    """It was stopped, so that it has the job and does nothing."""
    here = cenote.connect(platform.address, platform.token)
    ready = spare(platform, here)
    os.kill(ready, signal.SIGSTOP)
    job = here.jobs.submit([{"code": "'a'"}], sandbox=BARE)
    kill(ready)
    assert ("done", 1) == (job.wait(60.0).state, job.status().starts)
    assert [("'a'", 1, 0)] == [(each.answer, each.attempts, each.lost) for each in job.results()]


def test_killed_with_the_gateway_before_its_first_task(platform: StandingPlatform) -> None:
    here = cenote.connect(platform.address, platform.token)
    ready = spare(platform, here)
    os.kill(ready, signal.SIGSTOP)
    job = here.jobs.submit([{"code": "'a'"}], sandbox=BARE)
    gateway = platform.gateway
    kill(gateway, ready)
    until(lambda: gateway != platform.gateway and platform.answers)
    assert "done" == job.wait(60.0).state
    assert [("'a'", 1, 0)] == [(each.answer, each.attempts, each.lost) for each in job.results()]


def test_the_gateway_is_killed_over_its_task(platform: StandingPlatform) -> None:
    """The process goes on, and the next gateway finds it and no other; the former spare is ended."""
    here = cenote.connect(platform.address, platform.token)
    ready = spare(platform, here)
    slow = "import time\nfor _ in range(400): time.sleep(0.01)\n'over'"
    job = here.jobs.submit([{"code": slow}], sandbox=BARE)
    until(lambda: at_work(here))
    gateway = platform.gateway
    kill(gateway)
    until(lambda: gateway != platform.gateway and platform.answers)
    assert ("done", 1) == (job.wait(60.0).state, job.status().starts)
    assert [("'over'", 1, 0)] == [(each.answer, each.attempts, each.lost) for each in job.results()]
    assert ready != spare(platform, here, ready)


def test_a_drained_machine_has_none(platform: StandingPlatform) -> None:
    here = cenote.connect(platform.address, platform.token)
    ready = spare(platform, here)
    (node,) = here.describe().nodes
    platform.begin("node", "drain", node.id, "--wait", "1").communicate()
    try:
        until(lambda: not platform.processes("ray::SpareActor"))
    finally:
        platform.command("node", "resume", node.id)
    assert ready != spare(platform, here, ready)
