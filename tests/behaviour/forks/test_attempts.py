"""Best of n: branches of runtime and conversation, of which the best is kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from cenote.agent import BranchesFailedError, CaveAgent
from cenote.agent.act.branches import BranchAttempt, best
from cenote.models import Message, ScriptedModel
from cenote.rl import Environment
from cenote.runtime import FinalState, PythonRuntime, Variable
from cenote_security.errors import UsageError

pytestmark = pytest.mark.usefixtures("where")

Make = Callable[..., PythonRuntime]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def numbered_model(turns: int) -> ScriptedModel:
    """Each conversation about `go` sets x to a number of its own, then answers."""
    numbers = itertools.count(1)

    def answer(messages: Sequence[Message]) -> str:
        if "Output" in messages[-1].content:
            return f"Done after {messages[-1].content}."
        return block(f"x = start + {next(numbers)}; print(x)")

    return ScriptedModel([answer] * turns)


def points(state: FinalState) -> float:
    return float(state.retrieve("x"))


def test_the_highest_score_and_the_first_of_equals() -> None:
    """Branches without a score are never the best; without any score the errors are reported."""
    scores = [None, 1.0, 3.0, 3.0]
    assert 2 == best([BranchAttempt(score=score) for score in scores])
    with pytest.raises(BranchesFailedError, match=r"none of 1 branches.*ValueError: no") as failed:
        best([BranchAttempt(error=ValueError("no"))])
    assert ["no"] == [str(error) for error in failed.value.errors]


@pytest.mark.at("embedded", "relayed")
async def test_the_best_branch_is_kept(make: Make) -> None:
    """Its runtime and conversation become the agent's; the original runtime is unchanged."""
    runtime = make(variables=[Variable("start", 10)])
    agent = CaveAgent(numbered_model(7), runtime)
    response = await agent.branch("go", n=3, score=points)
    assert (13.0, [11.0, 12.0, 13.0]) == (response.score, sorted(b.score or 0 for b in response.branches))
    assert "13" in response.content
    assert 13 == agent.runtime.retrieve("x")
    assert "NameError" in str(runtime.execute("x").error)
    assert response.content == agent.messages[-1].content
    await agent.run("go on: Output")
    agent.runtime.close()


async def test_a_score_that_is_no_number_is_none(make: Make) -> None:
    """NaN compares as neither less nor greater: an attempt with that score must not win."""
    agent = CaveAgent(numbered_model(7), make(variables=[Variable("start", 10)]))
    given = iter([float("nan"), 2.0, None])
    response = await agent.branch("go", n=3, score=lambda state: next(given))
    assert 2.0 == response.score
    errors = sorted(outcome.error for outcome in response.branches)
    assert ["", True, True] == [errors[0], "not None" in errors[1], "not a number (NaN)" in errors[2]]
    agent.runtime.close()


async def test_a_score_that_cannot_be_called_is_told_before_the_work() -> None:
    """No model is called, and no jail is started."""

    async def waiting(state: FinalState) -> float:
        return 1.0

    agent = CaveAgent(numbered_model(2))
    for score in (waiting, 1.0):
        with pytest.raises(UsageError, match="score is a plain function"):
            await agent.branch("go", n=2, score=score)
        with pytest.raises(UsageError, match="score is a plain function"):
            Environment("go", PythonRuntime, score)


async def test_verifiers_look_and_run_checks_that_leave_nothing(make: Make) -> None:
    """A check cell works on the branch's final state, and has no lasting effect."""
    seen: list[str | None] = []

    def score(state: FinalState) -> float:
        seen.append(state.check("x += 100\nx").value)
        assert "x" in {info.name for info in state.describe()}
        return points(state)

    agent = CaveAgent(numbered_model(2), make(variables=[Variable("start", 0)]))
    assert 1.0 == (await agent.branch("go", n=1, score=score)).score
    assert ["101"] == seen
    agent.runtime.close()


async def test_branches_that_fail_are_recorded(make: Make) -> None:
    """A verifier's error belongs to its branch; when all fail, the agent is unchanged."""

    def picky(state: FinalState) -> float:
        if points(state) != 2:
            raise ValueError("not two")
        return 1.0

    runtime = make(variables=[Variable("start", 0)])
    agent = CaveAgent(numbered_model(8), runtime)
    response = await agent.branch("go", n=2, score=picky)
    assert ["", "ValueError: not two"] == sorted(outcome.error for outcome in response.branches)
    kept = agent.runtime
    with pytest.raises(BranchesFailedError, match="not two"):
        await agent.branch("go", n=2, score=picky)
    assert (kept, 2) == (agent.runtime, kept.retrieve("x"))
    kept.close()


async def test_one_budget_for_all(make: Make) -> None:
    """Beyond it no call is made, and a branch that needs one has failed."""
    agent = CaveAgent(numbered_model(6), make(variables=[Variable("start", 0)]))
    with pytest.raises(BranchesFailedError, match=r"AllowanceSpentError: .* of 1 tokens are used"):
        await agent.branch("go", n=2, score=points, max_tokens=1)
    with pytest.raises(UsageError):
        await agent.branch("go", n=2, score=points, max_tokens=0)


async def test_outputs_put_away_are_the_branchs_own(make: Make) -> None:
    """One function reads them, in each branch its own outputs and the earlier ones."""
    texts = [block("print('a' * 300)"), "Done.", block("print('b' * 300)"), "Done."]
    agent = CaveAgent(ScriptedModel(texts), make(), max_exec_output=100)
    await agent.run("fill")
    former = agent.runtime
    await agent.branch("fill again", n=1, score=lambda _state: 1.0)
    read = "read_output(1)[0] + read_output(2)[0]"
    assert "'ab'" == agent.runtime.execute(read).value
    assert "LookupError" in str(former.execute(read).error)
    assert "NameError" in str(agent.runtime.execute("read_output_2").error)
    agent.runtime.close()
