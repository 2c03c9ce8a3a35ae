"""What a user may give by mistake is refused in words, where it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cenote
from cenote import CaveAgent, PythonRuntime, Team
from cenote.harness.state import ExecutionState
from cenote.models import ReplayModel, ScriptedModel
from cenote_security.errors import UsageError

WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no script": (lambda: ScriptedModel(None), "a script is a list of turns, not None"),
    "a turn": (lambda: ScriptedModel(["a", 5]), "a turn is a text, .*, not 5"),
    "no recording": (lambda: ReplayModel(None), "give its path, not None"),
    "a name": (lambda: PythonRuntime(name=5), "a name is a text, not 5"),
    "no variables": (lambda: PythonRuntime(variables=None), "variables is a list, not None"),
    "one function": (lambda: PythonRuntime(functions=len), "functions is a list, not <built-in"),
    "a history": (lambda: PythonRuntime(history="a\0b"), "cannot be a path: it has a zero byte"),
    "a recording": (lambda: ReplayModel("a\0b"), "no.* a readable recording"),
    "half a letter": (lambda: PythonRuntime(address="\ud800:80"), "is not an address"),
    "an address": (lambda: cenote.connect(5), "an address is a text, .*, not 5"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument(case: str) -> None:
    """The message tells what is wanted, and what was given."""
    make, message = WRONG[case]
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize("ask", [ExecutionState.artifact, ExecutionState.export])
@pytest.mark.parametrize("given", [None, 5.5])
def test_a_wrong_question_to_a_history(
    runtime: PythonRuntime, ask: Callable[..., object], given: object
) -> None:
    """As above."""
    with pytest.raises(UsageError, match=f"not (by|to) {given}"):
        ask(runtime.state, given)


async def test_agents_and_teams_tell_what_they_are() -> None:
    """In a debugger one sees which is which."""
    agent = CaveAgent(ScriptedModel(["a", "b"]))
    assert "<CaveAgent with ScriptedModel(2 turns, 0 used), 0 messages>" == repr(agent)
    async with Team("pipeline") as team:
        assert "<Team 'pipeline' of nobody>" == repr(team)
        team.add("cleaner", model=agent.model)
        assert "<Team 'pipeline' of cleaner>" == repr(team)


def test_the_package_shows_its_public_names_only() -> None:
    """What completion offers is what is promised."""
    assert sorted([*cenote.__all__, "__version__"]) == dir(cenote)
