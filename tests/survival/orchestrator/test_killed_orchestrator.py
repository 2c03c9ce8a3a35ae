"""A process that works on a team is killed in the middle: finished work is not repeated, and the team continues."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.orchestrator.studio import Studio, code
from tests.waiting import until

from cenote.plans import gather, step
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


@pytest.mark.slow
async def test_a_leads_task_goes_on(studio: Studio) -> None:
    """Killed while a sub-agent's model thinks, in a cell of the lead: no answered model call is repeated,
    no cell runs twice, and the lead's cell, which has waited all along, gets its answer.
    """
    studio.models.script(
        lead=[
            code("count = globals().get('count', 0) + 1\nprint('once', count)"),
            code("answer = await cleaner.run('clean')\nreply(f'{answer.content} {count}')"),
        ],
        cleaner=[code("n = globals().get('n', 0) + 1"), code("n += 10\nprint(n)"), "It is clean."],
    )
    gate = studio.models.hold("cleaner", 3)
    team = studio.team("killed", sandbox=BARE)
    team.add("boss", model=studio.model("lead"), lead=True).add("cleaner", model=studio.model("cleaner"))
    number = await team.start("Clean up")
    until(lambda: studio.models.calls["cleaner"] == 3)
    studio.kill_orchestrator()
    gate.set()
    run = await asyncio.wait_for(team.wait(number), 60)
    assert "It is clean. 1" == run.answer
    assert {"lead": 2, "cleaner": 4} == dict(studio.models.calls)
    status = team.status()
    assert 2 == status.starts
    told = [(news.agent, news.type) async for news in team.follow()]
    assert 1 == told.count(("", "resumed"))
    assert 2 == told.count(("boss", "code")) == told.count(("cleaner", "code"))
    assert 1 == told.count(("cleaner", "final_response"))
    numbers = [news.number async for news in team.follow()]
    assert sorted(set(numbers)) == numbers
    team.delete()


@pytest.mark.slow
async def test_killed_while_a_cell_runs(studio: Studio) -> None:
    """The cell continues; its result is waited for and used, and it does not run a second time."""
    slow = "import time\nfor _ in range(300): time.sleep(0.01)"  # longer where the machine is busy or paused
    count = f"runs = globals().get('runs', 0) + 1\nprint('begun', flush=True)\n{slow}\nprint(runs)"
    studio.models.script(lead=[code(count), code("reply(str(runs))")])
    team = studio.team("busy", sandbox=BARE)
    team.add("boss", model=studio.model("lead"))
    number = await team.start("Work")
    runtimes = studio.connect()
    until(lambda: [runtime.steps for runtime in runtimes.runtimes()] == [1])
    studio.kill_orchestrator()
    run = await asyncio.wait_for(team.wait(number), 60)
    assert ("1", {"lead": 2}) == (run.answer, dict(studio.models.calls))
    team.delete()


@pytest.mark.slow
async def test_finished_steps_of_a_plan_are_not_repeated(studio: Studio) -> None:
    """Killed in the last step: the other steps' agents are not called again, and their results are available."""
    studio.models.script(
        a=[code("rows = list(range(10))"), "Loaded."],
        b=[code("even = [row for row in rows if row % 2 == 0]"), "Cut."],
        c=[code("total = sum(even)\nprint(total)"), "Summed."],
    )
    gate = studio.models.hold("c", 2)
    team = studio.team("plan", sandbox=BARE)
    for name in "abc":
        team.add(name, model=studio.model(name))
    plan = (
        step("a", "make rows", gives="rows")
        >> step("b", "cut rows", takes="rows", gives="even")
        >> step("c", "sum even", takes="even", gives="total")
    )
    number = await team.start(plan)
    until(lambda: studio.models.calls["c"] == 2)
    assert ["done", "done", "running"] == [each.status for each in team.status().steps]
    studio.kill_orchestrator()
    gate.set()
    run = await asyncio.wait_for(team.wait(number), 60)
    assert {"a": 2, "b": 2, "c": 3} == dict(studio.models.calls)
    assert "Summed." == run.answer
    with studio.connect().runtime("reader", sandbox=BARE) as reader:
        reader.execute("total = None")
        reader.update_variable("total", run.references[0])
        assert 20 == reader.retrieve("total")
    studio.connect().delete("reader")
    team.delete()


@pytest.mark.slow
async def test_parts_at_once(studio: Studio) -> None:
    """Each of several running parts continues where it was."""
    studio.models.script(a=[code("x = 1"), "A."], b=[code("y = 2"), "B."])
    gates = [studio.models.hold(name, 2) for name in "ab"]
    team = studio.team("parts", sandbox=BARE)
    team.add("a", model=studio.model("a")).add("b", model=studio.model("b"))
    number = await team.start(gather(step("a", "x"), step("b", "y")))
    until(lambda: studio.models.calls == {"a": 2, "b": 2})
    studio.kill_orchestrator()
    for gate in gates:
        gate.set()
    run = await asyncio.wait_for(team.wait(number), 60)
    assert ("A.\n\nB.", {"a": 3, "b": 3}) == (run.answer, dict(studio.models.calls))
    team.delete()


@pytest.mark.slow
@pytest.mark.parametrize("times", [3])
async def test_killed_again_and_again(studio: Studio, times: int) -> None:
    """Each process gets a little further; nothing is done twice."""
    cells = [code(f"done = globals().get('done', []) + [{number}]") for number in range(times + 1)]
    studio.models.script(lead=[*cells, code("reply(str(done))")])
    gates = [studio.models.hold("lead", turn) for turn in range(2, times + 2)]
    team = studio.team("unlucky", sandbox=BARE)
    team.add("boss", model=studio.model("lead"))
    number = await team.start("Go on")
    for turn, gate in enumerate(gates, 2):
        until(lambda turn=turn: studio.models.calls["lead"] == 2 * turn - 2)  # type: ignore[misc]
        studio.kill_orchestrator()
        until(lambda turn=turn: studio.models.calls["lead"] == 2 * turn - 1)  # type: ignore[misc]
        gate.set()
    run = await asyncio.wait_for(team.wait(number), 60)
    assert str(list(range(times + 1))) == run.answer
    assert times + 1 == team.status().starts
    team.delete()
