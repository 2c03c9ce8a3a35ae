"""Agents that roll failing blocks back, and models that roll back themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.agent import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

Make = Callable[..., PythonRuntime]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def outputs(agent: CaveAgent) -> list[str]:
    """The outputs of its blocks that the model has seen."""
    return [message.content for message in agent.messages[2:] if message.role == "user"]


async def play(runtime: PythonRuntime, *codes: str, **settings: object) -> CaveAgent:
    agent = CaveAgent(ScriptedModel([*map(block, codes), "Done."]), runtime, **settings)
    await agent.run("the task")
    return agent


async def test_a_failing_block_is_taken_back(make: Make) -> None:
    """Its effects before the failure are gone, and the model is informed; a block that succeeds stays."""
    runtime = make()
    agent = await play(runtime, "x = [1]", "x.append(2); 1 / 0", "print(x)", on_error="rollback")
    _, failed, shown = outputs(agent)
    assert "ZeroDivisionError" in failed
    assert failed.endswith("The namespace is as it was before this block.")
    assert "Output:\n[1]" == shown


async def test_so_many_blocks_are_taken_back(make: Make) -> None:
    """Then the effects of a failing block stay, as the last message said; a new task counts from zero."""
    runtime = make()
    fails = "x.append(2); 1 / 0"
    agent = await play(runtime, "x = [1]", fails, fails, "print(x)", on_error="rollback", max_rollbacks=1)
    _, first, second, shown = outputs(agent)
    assert "from now on" in first
    assert "as it was before" not in second
    assert "Output:\n[1, 2]" == shown


async def test_the_model_goes_back_to_what_it_has_kept(make: Make) -> None:
    """Both take effect when their block ends; the agent's own functions still exist afterwards."""
    runtime = make()
    agent = await play(
        runtime,
        "x = [1]; checkpoint('clean')",
        "x.append(2); print('y' * 200); rollback('clean'); x.append(3)",
        "print(x, read_output(2)[:3])",
        checkpoints=True,
        max_exec_output=100,
    )
    kept, back, shown = outputs(agent)
    assert kept.endswith("[The state is kept as 'clean'.]")
    assert back.endswith("[Rolled back: the namespace is as it was when 'clean' was kept.]")
    assert "Output:\n[1] yyy" == shown
    assert "`checkpoint(label)` keeps" in agent.messages[0].content


@pytest.mark.at("embedded")
async def test_a_label_that_nobody_gave(make: Make) -> None:
    """An error in the block that uses it; nothing is rolled back."""
    agent = await play(make(), "rollback('nowhere')", checkpoints=True)
    (shown,) = outputs(agent)
    assert "no state is kept as 'nowhere'; there are none" in shown


@pytest.mark.at("embedded")
async def test_without_leave_there_are_no_such_functions(make: Make) -> None:
    """The model has them only with the owner's permission."""
    agent = await play(make(), "checkpoint('a')")
    assert "NameError" in outputs(agent)[0]
    assert "checkpoint" not in agent.messages[0].content


@pytest.mark.at("embedded")
def test_on_error_is_one_of_two(make: Make) -> None:
    """Any other value is refused at once."""
    with pytest.raises(UsageError, match="on_error"):
        CaveAgent(ScriptedModel([]), make(), on_error="explode")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_rollbacks"):
        CaveAgent(ScriptedModel([]), make(), on_error="rollback", max_rollbacks=-1)
