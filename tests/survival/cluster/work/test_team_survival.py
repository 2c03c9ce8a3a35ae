"""A team on its own cluster: the actor that works on it is killed while a cell runs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

import cenote
from cenote.platform_team import ModelSpec
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.xdist_group("cluster")

BARE = SandboxPolicy(preload=(), memory="256MiB")

SLOW = """
import time
runs = globals().get('runs', 0) + 1
print('begun', flush=True)
for _ in range(400): time.sleep(0.01)
print(runs)
"""
"""Takes four seconds, and longer on a busy or paused machine: a process is killed meanwhile."""


def code(text: str) -> str:
    return f"```python\n{text}\n```"


@pytest.mark.slow
async def test_killed_while_a_cell_runs(platform: StandingPlatform) -> None:
    """Ray restarts the actor; the lead's cell has waited for its sub-agent all along, whose cell ran once."""
    here = cenote.connect(platform.address, platform.token)
    team = here.team("pipeline", sandbox=BARE)
    lead = [code("answer = await worker.run('work')\nreply(answer.content)")]
    team.add("boss", model=ModelSpec(script=lead), lead=True)
    team.add("worker", model=ModelSpec(script=[code(SLOW), code("reply(f'ran {runs} times')")]))
    number = await team.start("See to it")

    def at_work() -> set[str]:
        return {runtime.name.rpartition("-")[2] for runtime in here.runtimes() if runtime.steps}

    until(lambda: at_work() >= {"boss", "worker"})
    kill(*until(lambda: platform.processes("ray::OrchestratorActor")))
    run = await asyncio.wait_for(team.wait(number), 90)
    assert ("ran 1 times", 2) == (run.answer, team.status().starts)
    told = [(news.agent, news.type) async for news in team.follow()]
    assert 1 == told.count(("", "resumed"))
    assert 1 == told.count(("worker", "code")) - 1
    team.delete()
    until(lambda: not platform.processes("ray::OrchestratorActor"))
    assert [] == platform.secrets_of_teams()


@pytest.mark.slow
async def test_a_team_that_is_deleted_over_its_work(platform: StandingPlatform) -> None:
    """The loop was killed and is not restarted, so its agents' runtimes are left. They go with the team, as its token
    does, and not with their leases of a quarter of an hour.
    """
    here = cenote.connect(platform.address, platform.token)
    team = here.team("unwanted", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[code(SLOW), code("reply(runs)")]))
    await team.start("Work")
    until(lambda: any(runtime.name.endswith("boss") and runtime.steps for runtime in here.runtimes()))
    tokens = rows(platform, "tokens")
    kill(*platform.processes("ray::OrchestratorActor"))
    team.delete()
    assert [] == [runtime.name for runtime in here.runtimes() if runtime.name.endswith("boss")]
    assert tokens - 1 == rows(platform, "tokens")
    until(lambda: not platform.processes("ray::OrchestratorActor"))  # otherwise the next test finds it


def rows(platform: StandingPlatform, table: str) -> int:
    with closing(sqlite3.connect(platform.state / "gateway.db")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.slow
async def test_the_gateway_is_killed(platform: StandingPlatform) -> None:
    """The actor continues without it, and is found again."""
    team = cenote.connect(platform.address, platform.token).team("alone", sandbox=BARE)
    team.add("boss", model=ModelSpec(script=[code(SLOW), code("reply(f'ran {runs} times')")]))
    number = await team.start("Work")
    until(
        lambda: any(runtime.steps for runtime in cenote.connect(platform.address, platform.token).runtimes())
    )
    gateway = platform.gateway
    kill(gateway)
    until(lambda: gateway != platform.gateway and platform.answers)
    run = await asyncio.wait_for(team.wait(number), 90)
    assert ("ran 1 times", 1) == (run.answer, team.status().starts)
    team.delete()
    until(lambda: not platform.processes("ray::OrchestratorActor"))  # otherwise the next test finds it
