"""Plans of steps, in real jails: pipelines, gathers, races, fan-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import PATIENCE

from cenote.models import ScriptedModel
from cenote.runtime import Function, ObjectReference
from cenote.team import (
    Budget,
    Member,
    NoSuccessError,
    Step,
    StepFailedError,
    Team,
    fan_out,
    first,
    gather,
    race,
)
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(memory="256MiB", preload=())


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def agent(team: Team, name: str, code: str, answer: str = "Done.", times: int = 1) -> Member:
    """An agent whose model runs `code` and then answers, for this many tasks."""
    return team.add(name, model=lambda: ScriptedModel([block(code), answer] * times))


class Gate:
    """A function for a jail that reports that it was reached: the cell then sleeps longer than any test lasts."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    def injected(self) -> Function:
        async def arrive() -> None:
            self.reached.set()

        return Function(arrive, host=True)

    def agent(self, team: Team, name: str) -> Member:
        code = "await arrive()\nimport time\ntime.sleep(600)"
        model = ScriptedModel([block(code), "Done."])
        return team.add(name, model=model, functions=[self.injected()])


async def is_free(member: Member) -> bool:
    """Whether the member's runtime answers, which it does not while a cell sleeps there."""
    result = await asyncio.wait_for(member.runtime.execute("6 * 7"), PATIENCE)
    return result.value == "42"


async def test_a_pipeline_hands_references_on() -> None:
    """The value goes in once, passes from stage to stage as a reference, and the result is one."""
    async with Team("line", sandbox=SMALL) as team:
        double = Step(agent(team, "a", "y = [2 * n for n in x]"), "Double.", takes="x", gives="y")
        total = Step(agent(team, "b", "z = sum(y)", "Summed up."), "Sum up.", takes="y", gives="z")
        last = Step(agent(team, "c", "print(n)", "Shown."), "Show.", takes="n")
        plan = double >> total >> last
        assert (1, 0) == (plan.takes, plan.gives)
        outcome = await (double >> total).run([1, 2, 3])
        assert ("Summed up.", "int") == (outcome.answer, outcome.reference.type)
        shown = await last.run(outcome.reference)
        assert ("Shown.", ()) == (shown.answer, shown.references)
        assert 12 == await team["c"].runtime.retrieve("n")


async def test_a_stage_has_to_fit_the_next_one() -> None:
    """Checked before anything runs."""
    team = Team("fit")
    member = team.add("a", model=ScriptedModel([]))
    nothing, two = Step(member, "Do."), Step(member, "Do.", takes=["x", "y"])
    with pytest.raises(UsageError, match="gives 0 references and the next one takes 2"):
        nothing >> two
    with pytest.raises(UsageError, match="takes 2 inputs, not 1"):
        await two.run(1)
    with pytest.raises(UsageError, match="equally many"):
        _ = race(nothing, Step(member, "Do.", gives="x")).gives
    no_names: Any = 5
    for wrong in (
        lambda: gather(),
        lambda: gather(nothing, two),
        lambda: Step(member, " "),
        lambda: Step(member, "Do.", takes=no_names),
    ):
        with pytest.raises(UsageError):
            wrong()
    other = Team("other").add("b", model=ScriptedModel([]))
    with pytest.raises(UsageError, match="one team"):
        await gather(nothing, Step(other, "Do.")).run()


async def test_gathered_works_take_the_same_and_give_in_order() -> None:
    """The next step takes the outputs of all."""
    async with Team("gather", sandbox=SMALL) as team:
        low = Step(agent(team, "low", "r = min(x)"), "Lowest.", takes="x", gives="r")
        high = Step(agent(team, "high", "r = max(x)"), "Highest.", takes="x", gives="r")
        span = Step(agent(team, "span", "s = b - a"), "Span.", takes=["a", "b"], gives="s")
        outcome = await (gather(low, high) >> span).run([3, 1, 9])
        assert 8 == await team["span"].runtime.retrieve("s")
        assert ["span"] == [result.agent for result in outcome.results]


async def test_a_failure_ends_what_runs_beside_it() -> None:
    """The other's cell too."""
    gate = Gate()
    async with Team("fail", sandbox=SMALL) as team:
        sleeper = gate.agent(team, "sleeper")
        model = ScriptedModel([block("await sleeping()\nx = 1"), "I did it."])
        failing = team.add(
            "failing", model=model, functions=[Function(gate.reached.wait, host=True, name="sleeping")]
        )
        both = gather(Step(sleeper, "Sleep."), Step(failing, "Make `y`.", gives="y"))
        with pytest.raises(StepFailedError, match="'failing' failed: it has not made 'y'; it said: I did it"):
            await both.run()
        assert await is_free(sleeper)


@pytest.mark.parametrize("choose", [race, first])
async def test_whoever_wins_ends_the_others(choose: Callable[..., Step]) -> None:
    """Cancellation reaches the running cell; the losing agent can be used again."""
    gate = Gate()
    async with Team("race", sandbox=SMALL) as team:
        sleeper = gate.agent(team, "sleeper")
        model = ScriptedModel([block("await sleeping()\ny = 5"), "First."])
        quick = team.add(
            "quick", model=model, functions=[Function(gate.reached.wait, host=True, name="sleeping")]
        )
        plan = choose(Step(sleeper, "Slow.", gives="y"), Step(quick, "Quick.", gives="y"))
        outcome = await asyncio.wait_for(plan.run(), PATIENCE)
        assert ("First.", "int") == (outcome.answer, outcome.reference.type)
        assert await is_free(sleeper)
        assert ["failed", "done"] == [step.status for step in team.state.steps]


async def test_the_first_success_passes_over_failures() -> None:
    """Unlike a race, where the first one to end decides."""
    async with Team("first", sandbox=SMALL) as team:
        bad, good = agent(team, "bad", "x = 1", times=2), agent(team, "good", "y = 1")
        fails = Step(bad, "Make `y`.", gives="y")
        outcome = await first(fails, Step(good, "Make `y`.", gives="y")).run()
        assert "good" == outcome.results[0].agent
        with pytest.raises(NoSuccessError, match="none of 1 ways succeeded: StepFailedError"):
            await first(fails).run()


async def test_a_task_that_ends_without_success_fails_its_step() -> None:
    """An agent that has used up its steps has not done its task, whatever it has produced."""
    async with Team("steps", sandbox=SMALL) as team:
        member = team.add("slow", model=ScriptedModel([block("y = 1")]), max_steps=1)
        with pytest.raises(StepFailedError, match="max_steps_reached"):
            await Step(member, "Make `y`.", gives="y").run()


async def test_a_failed_step_tells_why_its_last_block_failed() -> None:
    """An error of the code, a rule or a patch; not one that was fixed before the agent gave up."""
    put_right = [block("1 / 0"), block("x = 1"), "I did it."]
    missing = "it has not made 'y'"
    ends = {
        f"{missing}; its last block failed: NameError: .*'x'.*; it said: I": [block("y = x"), "I did it."],
        f"{missing}; it said: I did it": put_right,
        "ended as max_steps_reached; its last block failed: ZeroDivisionError: division by zero; it said": [
            block("1 / 0")
        ]
        * 3,
        "its last block failed: .*broken.*; it said: I": ["```patch\nbroken\n```", "I did it."],
    }
    async with Team("why", sandbox=SMALL) as team:
        for number, (told, script) in enumerate(ends.items()):
            model = ScriptedModel(script)
            member = team.add(f"agent{number}", model=model, max_steps=len(put_right), patches=True)
            with pytest.raises(StepFailedError, match=told):
                await Step(member, "Make `y`.", gives="y").run()


async def test_a_fan_out_works_on_each_item_with_an_agent_of_its_own() -> None:
    """Outcomes in the order of the items; never more agents than the limit says; all of them gone afterwards."""
    most = 0

    async with Team("fan", sandbox=SMALL, budget=Budget(agents=4)) as team:

        async def watch() -> None:
            nonlocal most
            most = max(most, 4 - (team.remaining.agents or 0))

        model_of = lambda: ScriptedModel([block("await watch()\ny = x * x"), "Squared."])  # noqa: E731
        square = team.add("square", model=model_of, functions=[Function(watch, host=True)])
        step = Step(square, "Square.", takes="x", gives="y")
        outcomes = await fan_out(step, [1, 2, 3, 4, 5], limit=3)
        check = agent(team, "check", "total = [a, b, c, d, e]")
        adding = Step(check, "Collect.", takes=list("abcde"))
        await adding.run(*(outcome.reference for outcome in outcomes))
        assert [1, 4, 9, 16, 25] == await check.runtime.retrieve("total")
        assert 4 == most
        assert 2 == team.remaining.agents


async def test_a_failing_item_ends_a_fan_out() -> None:
    """Its error is raised; no replica is left."""
    async with Team("fan", sandbox=SMALL, budget=Budget(agents=4)) as team:
        step = Step(
            agent(team, "invert", "y = 1 / x if x else None\nif y is None: del y"),
            "Go.",
            takes="x",
            gives="y",
        )
        with pytest.raises(StepFailedError, match="invert#"):
            await fan_out(step, [1, 0, 2], limit=2)
        assert 3 == team.remaining.agents
        with pytest.raises(UsageError, match="limit"):
            await fan_out(step, [1], limit=0)


async def test_steps_of_one_agent_wait_for_each_other() -> None:
    """Plans may run concurrently though they share an agent: it does one thing after the other."""
    async with Team("turns", sandbox=SMALL) as team:
        member = agent(team, "one", "y = x + 1", times=3)
        step = Step(member, "Count on.", takes="x", gives="y")
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(step.run(number)) for number in (1, 2, 3)]
        assert all(isinstance(run.result().reference, ObjectReference) for run in runs)
        assert 6 == member.meter.calls


async def test_events_of_a_plan_can_be_followed() -> None:
    """Of all its agents, by name."""
    async with Team("follow", sandbox=SMALL) as team:
        a = Step(agent(team, "a", "y = x"), "Copy.", takes="x", gives="y")
        b = Step(agent(team, "b", "z = y"), "Copy.", takes="y", gives="z")
        events = [event async for event in team.stream_events(a >> b, 1)]
    assert ["a", "b"] == list(dict.fromkeys(event.agent for event in events))
    assert 2 == sum(event.type.value == "final_response" for event in events)
