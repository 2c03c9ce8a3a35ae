"""Teams whose agents work in real jails, on scripted models."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.waiting import PATIENCE

from cenote.agent import AgentBusyError
from cenote.models import ScriptedModel
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote.team import Budget, BudgetExceededError, Price, Team, UnknownTeamNameError
from cenote_security.errors import NameExistsError, UsageError, WeakerSandboxError
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(memory="256MiB", preload=())


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def says(*turns: str) -> ScriptedModel:
    return ScriptedModel(turns)


def shown(model: ScriptedModel, call: int) -> str:
    """The model's last input before its answer of that number, from 0."""
    return model.prompts[call][-1].content


async def test_a_lead_directs_the_others_by_their_names() -> None:
    """Data goes to a sub-agent, which works on it, and the result is fetched; no prompt contains a value."""
    lead = says(
        block(
            "cleaner.runtime.update_variable('data', raw)\n"
            "print(await cleaner.run('Tidy `data` into `tidy`.'))\n"
            "total = sum(cleaner.runtime.retrieve('tidy'))"
        ),
        "All done.",
    )
    cleaner = says(block("tidy = [x for x in data if x > 0]"), "Two are left.")
    async with Team("pipeline", sandbox=SMALL) as team:
        team.add("lead", model=lead, variables=[Variable("raw", [3141592, -1, 2718281])])
        team.add("cleaner", model=cleaner, description="tidies", variables=[Variable("data", [], "Input")])
        response = await team.run("Clean up.")
        assert 3141592 + 2718281 == await team["lead"].runtime.retrieve("total")
    assert "All done." == response.content
    prompts = [message.content for model in (lead, cleaner) for call in model.prompts for message in call]
    assert [] == [prompt for prompt in prompts if "3141592" in prompt or "2718281" in prompt]
    assert "cleaner  # tidies; has variables data" in lead.prompts[0][0].content
    assert shown(lead, 1) == "Output:\nTwo are left."


async def test_a_lead_hands_over_data_that_nobody_has_declared() -> None:
    """Under any name: the agent's next prompt mentions it, and it can be replaced."""
    lead = says(
        *(
            block(f"cleaner.runtime.update_variable('sales', [{size}])\nprint(await cleaner.run('Go on.'))")
            for size in (1, 2)
        ),
        "Done.",
    )
    cleaner = says(*(block("reply(str(sales))"),) * 2)
    async with Team("pipeline", sandbox=SMALL) as team:
        team.add("lead", model=lead)
        team.add("cleaner", model=cleaner)
        await team.run("Clean up.")
    assert ["Output:\n[1]", "Output:\n[2]"] == [shown(lead, 1), shown(lead, 2)]
    assert "sales: list" in cleaner.prompts[0][0].content


async def test_agents_may_have_agents_of_their_own() -> None:
    """Three levels; the budget's depth is the limit, at it and one past it."""
    async with Team("deep", sandbox=SMALL, budget=Budget(depth=3)) as team:
        lead = team.add("lead", model=says(block("print(await middle.run('Go on.'))"), "Done."))
        middle = team.add(
            "middle",
            under=lead,
            model=says(block("reply(str(await leaf.run(f'{budget.remaining()}')))")),
        )
        leaf = team.add("leaf", under=middle, model=says("Leaf here."))
        with pytest.raises(BudgetExceededError, match="depth"):
            team.add("deeper", under=leaf, model=says())
        await team.run("Begin.")
        assert [1, 2, 3] == [agent.level for agent in (lead, middle, leaf)]
        assert ["lead", "middle", "leaf"] == list(team.members)


async def test_a_sub_agent_may_do_no_more_than_its_parent() -> None:
    """The error names the field: when the agent is added, or when the lead is to get it."""
    wide = SandboxPolicy(memory="512MiB", preload=())
    async with Team("walls", sandbox=SMALL) as team:
        lead = team.add("lead", model=says("Done."))
        with pytest.raises(WeakerSandboxError, match="'helper' would be weaker than its parent's in memory"):
            team.add("helper", under=lead, model=says(), sandbox=wide)
        team.add("peer", model=says(), sandbox=wide)
        with pytest.raises(WeakerSandboxError, match="'peer'"):
            await team.run("Begin.")
        assert ["lead", "peer"] == list(team.members)
        assert [] == lead.members


async def test_a_sub_agent_takes_over_its_parent_s_sandbox() -> None:
    """Unless another one is given; the factory receives it."""
    made: dict[str, SandboxPolicy] = {}

    def runtimes(name: str, sandbox: SandboxPolicy) -> PythonRuntime:
        made[name] = sandbox
        return PythonRuntime(name=name, sandbox=sandbox)

    async with Team("inherit", runtimes=runtimes) as team:
        lead = team.add("lead", model=says(), sandbox=SMALL)
        team.add("helper", model=says(), under=lead)
        team.add("peer", model=says())
    assert {"lead": SMALL, "helper": SMALL, "peer": SandboxPolicy()} == made


async def test_a_blocking_runtime_does_as_well() -> None:
    """The team holds it, and closes it at the end."""
    made: list[PythonRuntime] = []

    def runtimes(name: str, sandbox: SandboxPolicy) -> PythonRuntime:
        made.append(PythonRuntime(name=name, sandbox=sandbox))
        return made[-1]

    async with Team("blocking", sandbox=SMALL, runtimes=runtimes) as team:
        team.add("only", model=says(block("x = 6 * 7"), "Done."))
        await team.run("Compute.")
        assert 42 == made[0].retrieve("x")
    with pytest.raises(UsageError):
        made[0].execute("x")


async def test_a_budget_ends_the_work_of_the_whole_tree() -> None:
    """The sub-agent's next call is refused; its parent's code gets the reason as text, and nothing is overspent."""
    lead = says(
        block("try:\n    await worker.run('Work.')\nexcept Exception as e:\n    print(e)"), "Stopped."
    )
    worker = says(*[block(f"print({number}, 'x' * 2700)") for number in range(20)])
    budget = Budget(tokens=12_000, answer=300)
    async with Team("poor", sandbox=SMALL, budget=budget) as team:
        team.add("lead", model=lead)
        team.add("worker", model=worker, max_steps=30)
        assert "Stopped." == (await team.run("Direct.")).content
        refusal = r"the team's budget of tokens does not cover this: (\d+) needed .*, (\d+) left"
        needed, left = map(int, re.findall(refusal, shown(lead, 1))[0])
        assert left < needed < 4_000  # the prompt of that call has about 2,700 tokens
        assert 12_000 - left < team.spent.tokens <= 12_000
        assert 12_000 - team.spent.tokens == team.remaining.tokens
        with pytest.raises(BudgetExceededError, match="tokens"):
            await team["worker"].run("Go on.")


async def test_code_can_read_the_budget() -> None:
    """As plain numbers, lower than what the program sees afterwards."""
    model = says(block("left = budget.remaining()\nused = budget.spent()"), "Done.")
    async with Team("read", sandbox=SMALL, budget=Budget(tokens=50_000, agents=3, depth=2)) as team:
        team.add("only", model=model)
        await team.run("Look.")
        left = await team["only"].runtime.retrieve("left")
        used = await team["only"].runtime.retrieve("used")
    assert {"cost": None, "agents": 2, "depth": 1, "seconds": None} == {
        key: value for key, value in left.items() if key != "tokens"
    }
    assert 50_000 == left["tokens"] + used["tokens"]
    assert 0 < used["tokens"] < team.spent.tokens
    assert "budget: BudgetHandle" in model.prompts[0][0].content


async def test_without_limits_there_is_no_budget_to_read() -> None:
    """No prompt mentions an absent budget."""
    model = says("Done.")
    async with Team("free", sandbox=SMALL) as team:
        team.add("only", model=model)
        await team.run("Look.")
    assert "budget" not in model.prompts[0][0].content


async def test_the_number_of_agents_is_limited() -> None:
    """At the limit, and one past it; nothing is left of the refused one."""
    async with Team("few", sandbox=SMALL, budget=Budget(agents=2)) as team:
        team.add("a", model=says())
        team.add("b", model=says())
        with pytest.raises(BudgetExceededError, match="agents"):
            team.add("c", model=says())
        assert ["a", "b"] == list(team.members)


async def test_a_refused_agent_takes_no_place() -> None:
    """Invalid settings are refused at once, and the reservation is returned."""
    async with Team("few", sandbox=SMALL, budget=Budget(agents=1)) as team:
        with pytest.raises(UsageError, match="max_steps"):
            team.add("a", model=says(), max_steps=0)
        team.add("a", model=says())


@pytest.mark.slow
async def test_time_is_part_of_the_budget() -> None:
    """A cell that would run on is ended when the team's seconds are over."""
    async with Team("hasty", sandbox=SMALL, budget=Budget(seconds=1.5)) as team:
        team.add("only", model=says(block("import time\ntime.sleep(600)"), "Done."))
        with pytest.raises(BudgetExceededError, match="seconds"):
            await team.run("Wait.")
        result = await asyncio.wait_for(team["only"].runtime.execute("1 + 1"), PATIENCE)
        assert "2" == result.value
        with pytest.raises(BudgetExceededError, match="seconds"):
            await team.run("Again.")


async def test_a_limit_on_cost_takes_a_price() -> None:
    """A scripted model has no price: no agent is better than one that spends uncounted."""
    async with Team("costly", sandbox=SMALL, budget=Budget(cost=0.5)) as team:
        with pytest.raises(UsageError, match="no price is known for 'scripted'"):
            team.add("only", model=says("Done."))
        team.add("only", model=says("Done."), price=Price(prompt=1, completion=2))
        await team.run("Answer.")
        assert 0 < team.spent.nanodollars < 10_000_000


async def test_cancelling_a_team_ends_what_its_agents_do() -> None:
    """The lead's cell waits for a sub-agent whose cell sleeps: both are free again at once, and no task is left."""
    entered = asyncio.Event()

    async def enter() -> None:
        entered.set()

    worker = says(block("await enter()\nimport time\ntime.sleep(600)"), "Done.")
    async with Team("cancel", sandbox=SMALL) as team:
        team.add("lead", model=says(block("await worker.run('Sleep.')"), "Done."))
        team.add("worker", model=worker, functions=[Function(enter, host=True)])
        tasks_before = asyncio.all_tasks()
        run = asyncio.ensure_future(team.run("Direct."))
        await asyncio.wait_for(entered.wait(), PATIENCE)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert tasks_before == asyncio.all_tasks()
        for name in ("lead", "worker"):
            result = await asyncio.wait_for(team[name].runtime.execute("6 * 7"), PATIENCE)
            assert "42" == result.value


async def test_a_sub_agent_that_was_not_awaited_ends_with_its_parent() -> None:
    """Code that starts a run and continues leaves nothing running when its agent is done."""
    started = asyncio.Event()

    async def enter() -> None:
        started.set()

    async def worker_at_work() -> None:
        await started.wait()

    lead = says(
        block("import asyncio\ntask = asyncio.ensure_future(worker.run('Sleep.'))\nawait worker_at_work()"),
        "Done.",
    )
    async with Team("orphans", sandbox=SMALL) as team:
        team.add("lead", model=lead, functions=[Function(worker_at_work, host=True)])
        team.add(
            "worker",
            model=says(block("await enter()\nimport time\ntime.sleep(600)"), "Done."),
            functions=[Function(enter, host=True)],
        )
        tasks_before = asyncio.all_tasks()
        assert "Done." == (await asyncio.wait_for(team.run("Direct."), PATIENCE)).content
        assert tasks_before == asyncio.all_tasks()
        result = await asyncio.wait_for(team["worker"].runtime.execute("6 * 7"), PATIENCE)
        assert "42" == result.value


async def test_two_tasks_at_once_are_one_too_many() -> None:
    """An agent that gets a second task reports that it is busy, and continues with the first."""
    at_work, refused = asyncio.Event(), asyncio.Event()

    async def working() -> None:
        at_work.set()
        await refused.wait()

    async def wait_for_work() -> None:
        await at_work.wait()

    async def let_go() -> None:
        refused.set()

    code = """
import asyncio
first = asyncio.ensure_future(w.run('a'))
await wait_for_work()
try:
    await w.run('b')
except Exception as error:
    print(error)
await let_go()
print(await first)
"""
    lead = says(block(code), "Done.")
    async with Team("busy", sandbox=SMALL) as team:
        functions = [Function(wait_for_work, host=True), Function(let_go, host=True)]
        team.add("lead", model=lead, functions=functions)
        team.add(
            "w", model=says(block("await working()"), "First."), functions=[Function(working, host=True)]
        )
        await asyncio.wait_for(team.run("Ask twice."), PATIENCE)
    assert shown(lead, 1).startswith(f"Output:\n{AgentBusyError()}\nFirst.")


async def test_being_asked_while_busy_disturbs_nothing() -> None:
    """The lead is refused a second task; its sub-agent's work for the first continues."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def working() -> None:
        at_work.set()
        await go_on.wait()

    async with Team("busy", sandbox=SMALL) as team:
        team.add("lead", model=says(block("print(await w.run('Work.'))"), "Done."))
        team.add(
            "w", model=says(block("await working()"), "Worked."), functions=[Function(working, host=True)]
        )
        run = asyncio.ensure_future(team.run("Direct."))
        await asyncio.wait_for(at_work.wait(), PATIENCE)
        with pytest.raises(AgentBusyError):
            await team.run("Something else.")
        go_on.set()
        assert "Done." == (await asyncio.wait_for(run, PATIENCE)).content
        assert 2 == team["w"].meter.calls


async def test_code_that_nobody_waits_for_sets_nobody_to_work() -> None:
    """A thread that a cell left running, or a jail that was taken over, cannot spend when its agent has no task."""
    worker = says("Never said.")
    async with Team("idle", sandbox=SMALL) as team:
        team.add("lead", model=says("Done."))
        team.add("w", model=worker)
        await team.run("Begin.")
        result = await team["lead"].runtime.execute("await w.run('Work.')")
    assert result.error is not None
    assert "a sub-agent works only while its parent works on a task" in result.error.message
    assert () == worker.prompts


async def test_events_have_the_name_of_their_agent() -> None:
    """In order, the sub-agent's between those of the cell that runs it."""
    async with Team("loud", sandbox=SMALL) as team:
        team.add("lead", model=says(block("print(await w.run('Go.'))"), "Over."))
        team.add("w", model=says("Yes."))
        events = [event async for event in team.stream_events("Begin.")]
    kinds = [(event.agent, event.type.value) for event in events]
    assert [
        ("lead", "code"),
        ("w", "text"),
        ("w", "final_response"),
        ("lead", "execution_output"),
        ("lead", "text"),
        ("lead", "final_response"),
    ] == list(dict.fromkeys(kinds))
    assert "Over." == events[-1].content


async def test_closing_the_events_ends_the_work() -> None:
    """Like a cancellation of the run."""
    entered = asyncio.Event()

    async def enter() -> None:
        entered.set()

    model = says(block("await enter()\nimport time\ntime.sleep(600)"), "Done.")
    async with Team("loud", sandbox=SMALL) as team:
        team.add("only", model=model, functions=[Function(enter, host=True)])
        tasks_before = asyncio.all_tasks()
        events = team.stream_events("Begin.")
        assert "code" == (await anext(events)).type.value
        await asyncio.wait_for(entered.wait(), PATIENCE)
        await events.aclose()
        assert tasks_before == asyncio.all_tasks()
        result = await asyncio.wait_for(team["only"].runtime.execute("6 * 7"), PATIENCE)
        assert "42" == result.value


async def test_events_end_with_the_error_of_the_run() -> None:
    """A client that follows a team learns why it stopped."""
    async with Team("loud", sandbox=SMALL, budget=Budget(tokens=10)) as team:
        team.add("only", model=says("Done."))
        with pytest.raises(BudgetExceededError):
            _ = [event async for event in team.stream_events("Begin.")]


def test_a_team_needs_agents_of_different_names() -> None:
    """Names stand for agents in code: identifiers, each once."""
    team = Team("names")
    team.add("a", model=says())
    for name, error in (("a", "has an agent 'a' already"), ("not a name", "identifier")):
        with pytest.raises(UsageError, match=error):
            team.add(name, model=says())
    with pytest.raises(UnknownTeamNameError, match="no agent 'b'; there are a"):
        team["b"]


async def test_a_team_without_agents_runs_nothing() -> None:
    """The error says so."""
    with pytest.raises(UsageError, match="has no agents"):
        await Team("empty").run("Begin.")


async def test_a_name_that_is_taken_in_a_namespace_is_refused() -> None:
    """A user's variable called `team` is not replaced by the team."""
    async with Team("clash", sandbox=SMALL) as team:
        team.add("only", model=says("Done."), variables=[Variable("team", "mine")])
        with pytest.raises(NameExistsError):
            await team.run("Begin.")


async def test_models_can_be_made_for_each_agent() -> None:
    """A factory function is called for each agent that needs a model."""
    made: list[ScriptedModel] = []

    def make() -> ScriptedModel:
        made.append(says("Done."))
        return made[-1]

    async with Team("makers", sandbox=SMALL) as team:
        member = team.add("only", model=make)
        await team.run("Begin.")
        async with member.replica() as replica:
            await replica.run("Begin.")
            assert "only#1" == replica.name
    assert [1, 1] == [len(model.prompts) for model in made]
    assert 2 == member.meter.calls


async def test_a_replica_brings_agents_like_its_own() -> None:
    """Its sub-agents are new ones too; all of them are gone with it, and their places free."""

    def lead_model() -> ScriptedModel:
        return says(block("print(await helper.run('Go.'))"), "Done.")

    async with Team("tree", sandbox=SMALL, budget=Budget(agents=4)) as team:
        lead = team.add("lead", model=lead_model)
        team.add("helper", model=lambda: says("Helped."), under=lead)
        async with lead.replica() as replica:
            assert 0 == team.remaining.agents
            assert "Done." == (await replica.run("Begin.")).content
            with pytest.raises(BudgetExceededError, match="agents"):
                async with lead.replica():
                    pass
        assert 2 == team.remaining.agents
        assert "Done." == (await lead.run("Begin.")).content


async def test_the_team_s_runtimes_are_asynchronous() -> None:
    """Whatever the factory creates: members are used from code that awaits."""
    team = Team("face")
    assert isinstance(team.add("a", model=says()).runtime, AsyncPythonRuntime)


async def test_what_makes_no_team_is_told() -> None:
    """A team needs a name, and an agent a model: checked when they are given, not at the first call."""
    for name in ("", None, "a\0b"):
        with pytest.raises(UsageError, match="the name of a team is a printable text"):
            Team(name)  # type: ignore[arg-type]
    async with Team("monthly") as team:
        with pytest.raises(UsageError, match="an agent needs a model"):
            team.add("lead", model=None)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_members_go_back_and_patch_as_agents_do_by_themselves() -> None:
    """What CaveAgent can do in its own runtime, a member of a team can."""
    careful = says(block("x = 1"), block("x = 2\n1 / 0"), block("print(x)"), "One.")
    keeper = says(
        block("y = 1\ncheckpoint('here')"), block("y = 2\nrollback('here')"), block("print(y)"), "One."
    )
    mender = says(block("z = 1"), block("print(z * 2)"), "```patch\nstep 1\nz = 4\n```", "Eight.")
    async with Team("able", sandbox=SMALL) as team:
        team.add("careful", model=careful, on_error="rollback")
        team.add("keeper", model=keeper, checkpoints=True)
        team.add("mender", model=mender, patches=True)
        for name in ("careful", "keeper", "mender"):
            await team[name].run("Go.")
        assert 4 == await team["mender"].runtime.retrieve("z")
    assert ["Output:\n1", "Output:\n1"] == [shown(careful, 3), shown(keeper, 3)]
    assert "8" in shown(mender, 3)
