"""The state of a team as plain data, and resuming from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.models import Message, ScriptedModel
from cenote.runtime import ObjectReference, Variable
from cenote.team import (
    AgentState,
    Budget,
    ReferenceState,
    Step,
    StepFailedError,
    StepState,
    Team,
    TeamState,
    UnknownTeamNameError,
    VariableState,
)
from cenote.team.progress import ReferencesInUse
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(memory="256MiB", preload=())
TEXT = st.text(max_size=8)
REFERENCES = st.builds(
    ReferenceState,
    id=TEXT,
    type=TEXT,
    shape=st.none() | st.lists(st.integers(0, 9)).map(tuple),
    size=st.integers(0),
    description=TEXT,
)
STATES = st.builds(
    TeamState,
    team=TEXT,
    tokens=st.integers(0),
    nanodollars=st.integers(0),
    agents=st.lists(st.builds(AgentState, name=TEXT, model=TEXT, parent=TEXT), max_size=3).map(tuple),
    steps=st.lists(
        st.builds(
            StepState,
            key=TEXT,
            agent=TEXT,
            task=TEXT,
            status=st.sampled_from(["running", "done", "failed"]),
            inputs=st.lists(TEXT, max_size=3).map(tuple),
            output=st.none() | REFERENCES,
            answer=TEXT,
            error=TEXT,
        ),
        max_size=3,
    ).map(tuple),
    variables=st.lists(
        st.builds(VariableState, name=TEXT, version=st.integers(1), author=TEXT, reference=REFERENCES),
        max_size=3,
    ).map(tuple),
)


class Kept(ReferencesInUse):
    """A store that holds the states that it was given, as an external one would."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[ObjectReference] = []

    def keep(self, reference: ObjectReference) -> str:
        self.held.append(reference)
        return super().keep(reference)


@given(STATES)
def test_a_state_is_the_same_after_json(state: TeamState) -> None:
    """Every text and number, shapes of references included."""
    assert state == TeamState.from_json(state.to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version":1}',
        '{"version":1,"team":"t","tokens":"many","nanodollars":0,"agents":[],"steps":[],"variables":[]}',
        '{"version":1,"team":"t","tokens":0,"nanodollars":0,"agents":[{"x":1}],"steps":[],"variables":[]}',
    ],
)
def test_what_is_not_a_state_is_refused(text: str) -> None:
    """With one kind of error, whatever is wrong."""
    with pytest.raises(UsageError, match="not the state of a team"):
        TeamState.from_json(text)


def test_a_newer_format_is_refused() -> None:
    """It may give the same fields another meaning."""
    data = json.loads(TeamState(team="t").to_json())
    with pytest.raises(UsageError, match="newer Cenote"):
        TeamState.from_json(json.dumps({**data, "version": 2}))


def make_team(state: TeamState | None, store: Kept, scripts: dict[str, list[str]], **options: object) -> Team:
    """A team of two, as a program creates it at each of its starts."""
    team = Team("nightly", sandbox=SMALL, state=state, references=store, **options)
    for name in ("load", "sum"):
        team.add(name, model=ScriptedModel(scripts.get(name, [])))
    return team


def plan(team: Team) -> Step:
    load = Step(team["load"], "Load `rows`.", takes="seed", gives="rows")
    return load >> Step(team["sum"], "Sum up `rows`.", takes="rows", gives="total")


LOAD = ["```python\nrows = [seed] * 4\n```", "Loaded."]
SUM = ["```python\ntotal = sum(rows)\n```", "Summed."]


async def test_a_restarted_plan_goes_on_where_it_was() -> None:
    """The first stage was done before the crash: its model is not asked again, its reference is used."""
    store, states = Kept(), []
    async with make_team(None, store, {"load": LOAD, "sum": ["I can't."]}, on_state=states.append) as team:
        with pytest.raises(StepFailedError, match="it has not made 'total'"):
            await plan(team).run(7)
        spent = team.spent.tokens
    state = TeamState.from_json(states[-1].to_json())
    assert [("run-1/0", "load", "done"), ("run-1/1", "sum", "failed")] == [
        (step.key, step.agent, step.status) for step in state.steps
    ]
    assert "StepFailedError: the step of 'sum' failed" in state.steps[1].error
    async with make_team(state, store, {"sum": SUM}) as team:
        outcome = await plan(team).run(7)
        assert 28 == await team["sum"].runtime.retrieve("total")
        assert ("Summed.", 0) == (outcome.answer, team["load"].meter.calls)
        assert team.spent.tokens > spent
        assert ["done", "done"] == [step.status for step in team.state.steps]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("value", "change"),
    [
        (8, {}),
        (7, {"task": "Load other `rows`."}),
        (7, {"output": ReferenceState(id="gone", type="list")}),
        (7, {"status": "running"}),
        (7, {"status": "failed"}),
    ],
    ids=["other-input", "other-task", "value-gone", "was-running", "had-failed"],
)
async def test_what_is_not_surely_the_same_is_done_again(value: int, change: dict[str, object]) -> None:
    """Another input, another task, a value that no longer exists, or a step that had not succeeded."""
    store = Kept()
    async with make_team(None, store, {"load": LOAD, "sum": SUM}) as team:
        await plan(team).run(7)
        state = team.state
    state = replace(state, steps=(replace(state.steps[0], **change), state.steps[1]))
    async with make_team(state, store, {"load": LOAD, "sum": SUM}) as team:
        await plan(team).run(value)
        assert 4 * value == await team["sum"].runtime.retrieve("total")
        assert 2 == team["load"].meter.calls


@pytest.mark.parametrize(
    ("value", "calls"),
    [([1, 2], 2), ((1, 2), 4), ({1, 2}, 4), ([0] * 100_000, 4)],
    ids=["list", "tuple", "set", "long"],
)
async def test_inputs_that_nobody_can_compare_are_taken_as_new(value: object, calls: int) -> None:
    """JSON would take a tuple for a list; a value counts as the same only if it certainly is."""
    store = Kept()
    async with make_team(None, store, {"load": LOAD * 2}) as team:
        step = Step(team["load"], "Load `rows`.", takes="seed", gives="rows")
        for _ in range(2):
            await step.run(value, name="once")
        assert calls == team["load"].meter.calls


async def test_a_plan_that_runs_twice_is_done_twice() -> None:
    """Each run has its own name, by its number, unless it is given one."""
    store = Kept()
    async with make_team(None, store, {"load": LOAD * 2, "sum": SUM * 2}) as team:
        for _ in range(2):
            await plan(team).run(7)
        await plan(team).run(7, name="run-2")
        assert (4, 4) == (team["load"].meter.calls, team["sum"].meter.calls)
        assert ["run-1/0", "run-1/1", "run-2/0", "run-2/1"] == [step.key for step in team.state.steps]


async def test_variables_are_there_again_with_their_versions() -> None:
    """A lost value is missing, but its number is not used again."""
    store = Kept()
    async with make_team(None, store, {}) as team:
        await team["load"].runtime.inject(Variable("x", [1, 2]))
        for name in ("kept", "kept", "lost"):
            team.variables.put(name, await team["load"].runtime.share("x"), author="load")
        state = team.state
    lost = replace(state.variables[1], reference=ReferenceState(id="gone", type="list"))
    team = make_team(replace(state, variables=(state.variables[0], lost)), store, {})
    kept = team.variables.get("kept")
    assert (2, "load", "list", (2,)) == (kept.version, kept.author, kept.reference.type, kept.reference.shape)
    with pytest.raises(UnknownTeamNameError):
        team.variables.get("lost")
    assert [3, 2] == [team.variables.put(name, kept.reference) for name in ("kept", "lost")]


async def test_what_was_spent_stays_spent() -> None:
    """A restart does not give a fresh budget."""
    team = Team(
        "poor",
        budget=Budget(tokens=100, cost=2),
        state=TeamState(team="poor", tokens=60, nanodollars=5 * 10**8),
    )
    assert (40, 1.5) == (team.remaining.tokens, team.remaining.cost)


async def test_what_is_reserved_counts_as_spent_in_the_state() -> None:
    """After a crash in the middle of a call its cost is unknown."""
    asked: list[TeamState] = []
    team = Team("poor", sandbox=SMALL, budget=Budget(tokens=9_000, answer=500))

    def answer(_: Sequence[Message]) -> str:
        asked.append(team.state)
        return "Done."

    async with team:
        await team.add("a", model=ScriptedModel([answer])).run("Begin.")
        assert asked[0].tokens > 500 > team.state.tokens > 0
        assert team.spent.tokens == team.state.tokens


def test_the_state_of_another_team_is_refused() -> None:
    """Its steps may have the same names."""
    with pytest.raises(UsageError, match="state of team 'a', not of 'b'"):
        Team("b", state=TeamState(team="a"))


def test_a_state_names_agents_and_their_parents() -> None:
    """And the models, by their ids."""
    team = Team("tree")
    lead = team.add("lead", model=ScriptedModel([]))
    team.add("helper", model=ScriptedModel([], model_id="small"), under=lead)
    assert (
        AgentState(name="lead", model="scripted"),
        AgentState(name="helper", model="small", parent="lead"),
    ) == team.state.agents


async def test_references_in_use_prolong_no_life() -> None:
    """The same reference has the same id; one that is not held any more is not found."""
    store = ReferencesInUse()
    async with Team("life", sandbox=SMALL) as team:
        member = team.add("a", model=ScriptedModel([]), variables=[Variable("x", [1])])
        await team.prepare()
        reference = await member.runtime.share("x")
        first = store.keep(reference)
        assert (first, reference) == (store.keep(reference), store.find(first))
        del reference
        assert store.find(first) is None
