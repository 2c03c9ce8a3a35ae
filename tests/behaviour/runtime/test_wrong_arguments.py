"""Wrong arguments of a user are refused with a message, where they are given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cenote
from cenote import Budget, CaveAgent, PythonRuntime, Team
from cenote.harness import Patch
from cenote.harness.questions.execution_state import ExecutionState
from cenote.models import OpenAIServerModel, ReplayModel, ScriptedModel
from cenote.security import FunctionRule, SandboxPolicy, SecurityChecker
from cenote.team import gather
from cenote_security.errors import UsageError

MODEL = ScriptedModel([])

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
    "no store": (lambda: PythonRuntime.open("", "a"), "a store is a folder or a URL .*, not ''"),
    "a store": (lambda: PythonRuntime(store=b"x", name="a"), "a store is a folder or a URL .*, not b'x'"),
    "a chunk": (lambda: ScriptedModel(["a"], chunk_size="2"), "at least 1, not '2'"),
    "a base": (lambda: OpenAIServerModel("m", base_url=5), "base_url is an address .*, not 5"),
    "instructions": (lambda: CaveAgent(MODEL, instructions=5), "instructions is a text, not 5"),
    "system instructions": (
        lambda: CaveAgent(MODEL, system_instructions=[]),
        r"system_instructions is a text, not \[\]",
    ),
    "skills": (lambda: CaveAgent(MODEL, skills=5), "skills is a list, not 5"),
    "messages": (lambda: CaveAgent(MODEL, messages=5), "messages is a list, not 5"),
    "an event": (lambda: CaveAgent(MODEL, on_event="print"), "a function that takes an event, not 'print'"),
    "works": (
        lambda: gather([1, 2]),
        r"made of works, such as Step\(agent, task\), one by one, not of \[1, 2\]",
    ),
    "code": (lambda: SecurityChecker([FunctionRule(["eval"])]).check_code(b"x"), "code is a text, not bytes"),
    "a step": (lambda: Patch.replace_step("1", "x = 1"), "a step by its number, not by '1'"),
    "edits": (lambda: Patch.edit_text(1, "x"), "edits is a list of TextEdit"),
    "a reason": (lambda: Patch.remove_step(1, reason=5), "reason and author of a patch are texts, not int"),
    "a sandbox": (lambda: Team("t", sandbox=5), "a team takes a SandboxPolicy there, not 5"),
    "a state": (lambda: Team("t", state=5), "a team takes a TeamState there, not 5"),
    "an answer": (lambda: Budget(answer="5"), "a whole number from 1 to .*, not '5'"),
    "an address": (lambda: cenote.connect(5), "an address is a text, .*, not 5"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument(case: str) -> None:
    """The message has the expected and the given value."""
    make, message = WRONG[case]
    with pytest.raises(UsageError, match=message):
        make()


LIVE: dict[str, tuple[Callable[[PythonRuntime], object], str]] = {
    "one class": (
        lambda runtime: runtime.retrieve("x", int),
        r"a list of classes, such as \[Point\], not <class",
    ),
    "a key": (lambda runtime: runtime.outcome(None), "a key is a text, not None"),
    "no slice": (lambda runtime: runtime.state.verify("x"), "the Slice that .* gives, not str"),
    "a patch": (lambda runtime: runtime.state.revert(["a"]), "by its id, `plan.patch.id`, not list"),
    "a step": (lambda runtime: runtime.state.at([1]), r"by its number, not by \[1\]"),
    "a time": (lambda runtime: runtime.state.steps_by(since="now"), "seconds since the epoch, not 'now'"),
    "an endless name": (
        lambda runtime: runtime.retrieve("x" * 900),
        "no variable named 'x{199} in the namespace",
    ),
    "no names": (lambda runtime: runtime.merge(runtime, 5), "names is a list of names, not 5"),
}


def test_wrong_arguments_to_a_runtime(runtime: PythonRuntime) -> None:
    """As above, for a running one."""
    runtime.execute("x = 1")
    for call, message in LIVE.values():
        with pytest.raises(UsageError, match=message):
            call(runtime)


@pytest.mark.parametrize("ask", [ExecutionState.artifact, ExecutionState.export])
@pytest.mark.parametrize("given", [None, 5.5])
def test_a_wrong_question_to_a_history(
    runtime: PythonRuntime, ask: Callable[..., object], given: object
) -> None:
    """As above."""
    with pytest.raises(UsageError, match=f"not (by|to) {given}"):
        ask(runtime.state, given)


async def test_agents_and_teams_tell_what_they_are() -> None:
    """In a debugger the objects can be distinguished."""
    agent = CaveAgent(ScriptedModel(["a", "b"]))
    assert "<CaveAgent with ScriptedModel(2 turns, 0 used), 0 messages>" == repr(agent)
    async with Team("pipeline") as team:
        assert "<Team 'pipeline' of no agents>" == repr(team)
        team.add("cleaner", model=agent.model)
        assert "<Team 'pipeline' of cleaner>" == repr(team)


def test_the_package_shows_its_public_names_only() -> None:
    """Completion offers exactly the public names."""
    assert sorted([*cenote.__all__, "__version__"]) == dir(cenote)


def test_more_memory_than_there_is() -> None:
    """A limit that cannot be reached is refused."""
    with pytest.raises(
        UsageError, match=r"a jail of 900 TiB was asked for, and this machine has [\d.]+ [GT]iB"
    ):
        PythonRuntime(sandbox=SandboxPolicy(memory="900TiB")).execute("1")
