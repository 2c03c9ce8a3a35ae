"""Agents that patch code that has run: what a model writes, what runs again, and what it is shown."""

from __future__ import annotations

import pytest
from tests.fakes.in_process_runtime import InProcessRuntime
from tests.support.agent.playbook import NOW, core, drive
from tests.support.harness.laboratory import Laboratory

from cenote import PythonRuntime
from cenote.agent import CaveAgent, Event
from cenote.agent.vocabulary.commands import PlanPatch, RuntimeDescription, TextDelta, TurnEnded
from cenote.agent.vocabulary.conversation import Kind
from cenote.harness import (
    ApplyResult,
    BuildResult,
    Diagnosis,
    Patch,
    Plan,
    apply_plan,
    diagnose,
    make_plan,
)
from cenote.models import ScriptedModel
from cenote.models.messages import TokenUsage
from cenote_security.errors import UsageError
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.history.events import RanTest

HOW_TO_PATCH = "To correct step 3 (#3):"


class PatchableRuntime(InProcessRuntime):
    """The laboratory of the harness, with the interface of a runtime for agents."""

    author = "ana"

    def __init__(self, *, forbidden: tuple[str, ...] = ()) -> None:
        super().__init__(forbidden=forbidden)
        self.laboratory = Laboratory(by_name=True)
        self.laboratory.answers_only = True  # as runtimes do while a patch is applied
        self.patches: list[Patch] = []
        self.built: BuildResult | None = None

    async def execute(self, code: str, **options: object) -> ExecutionResult:
        record = self.laboratory.execute(None, code)
        self.laboratory.keep()
        return ExecutionResult(
            success=record.error is None, stdout=record.stdout, error=record.error, step=record.number
        )

    async def diagnose(self, step: int) -> Diagnosis | None:
        return diagnose(self.laboratory.line(), step)

    async def plan(self, patch: Patch) -> Plan:
        self.patches.append(patch)
        return make_plan(patch, self.laboratory.line(), self.laboratory.kept())

    async def apply(self, plan: Plan) -> ApplyResult:
        return apply_plan(plan, self.laboratory)

    async def build(self) -> BuildResult | None:
        return self.built


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def patch(text: str) -> str:
    return block(text, "patch")


def replaced(target: str, search: str, replacement: str) -> str:
    return patch(f"{target}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE")


async def play(runtime: PatchableRuntime, *answers: str) -> tuple[CaveAgent, list[Event], list[str]]:
    """The agent, its events, and the prompt text after each answer."""
    agent = CaveAgent(ScriptedModel([*answers, "Done."]), runtime, patches=True)
    events = [event async for event in agent.stream_events("the task")]
    return agent, events, [one.content for one in agent.messages[2:] if one.role == "user"]


STEPS = (
    block("rows = [3, 1, 2]"),
    block("def total(xs):\n    return len(xs)"),
    block("other = len(rows)\nshow(other)"),
    block("result = total(rows)\nshow(result)"),
)


async def test_a_patch_runs_again_what_depends_on_it() -> None:
    """The model reads the new output of rerun steps, and nothing of kept ones."""
    runtime = PatchableRuntime()
    _, events, shown = await play(
        runtime, *STEPS, replaced("function total", "return len(xs)", "return xs[1]")
    )
    # Steps after the change get new numbers; a model continues to use the ones it knows.
    assert ["rows = [3, 1, 2]", "def total(xs):\n    return xs[1]"] == [
        record.code for record in runtime.laboratory.line()[:2]
    ]
    assert "Patched; ran again: 2, 4.\nChanged: result, total.\n#4:\nstr:'' int:1" == shown[-1]
    assert 1 == [event.type.value for event in events].count("patch")


async def test_a_failing_step_is_patched_where_the_fault_is() -> None:
    """It shows where its values came from; after the earlier step is changed, it succeeds."""
    runtime = PatchableRuntime()
    _, _, shown = await play(
        runtime, block("rows = [3]"), block("show(rows[1])"), patch("step 1: too short\nrows = [3, 4]")
    )
    assert shown[1].startswith("#2:\nError: IndexError")
    made = f"What step 2 is made from:\nrows: step 1, rows = [3]\n{HOW_TO_PATCH}"
    assert shown[1].partition("range\n")[2].startswith(made)
    assert shown[2].endswith("#2:\nstr:'' int:4")
    assert ("too short", "ana") == (runtime.patches[0].reason, runtime.patches[0].author)


async def test_code_after_a_patch_runs_when_it_is_applied() -> None:
    """In the same turn: the model reads what the patch changed, then the output, each with its step's number."""
    runtime = PatchableRuntime()
    mended = replaced("function total", "return len(xs)", "return xs[1]").removesuffix("\n```")
    agent, events, shown = await play(runtime, *STEPS, f"{mended}\nshow(result + other)\n```")
    assert "Patched; ran again: 2, 4." == shown[-1].split("\n")[0]
    assert shown[-1].endswith("str:'' int:1\n\n#8:\nstr:'' int:4"), shown[-1]
    assert ["patch", "execution_output", "code"] == [event.type.value for event in events][-7:-4]
    assert [Kind.CODE.value, Kind.OUTPUT.value, Kind.OUTPUT.value] == [
        message.kind for message in agent.transcript[-4:-1]
    ]


@pytest.mark.parametrize(
    ("edit", "then", "content"),
    [
        ("return xs[1]", "reply(f'It is {result}.')", "It is 1."),
        ("return xs[9]", "reply('Done.')", "No."),
        ("return xs[1]", "reply(str(missing))", "No."),
    ],
    ids=["applied", "the patch fails", "the code after it fails"],
)
async def test_a_patch_can_end_a_run(edit: str, then: str, content: str) -> None:
    """With a reply after it, which counts only if the patch was applied and the code ran: no further model call."""
    with PythonRuntime() as runtime:
        mended = replaced("function total", "return len(xs)", edit).removesuffix("\n```")
        model = ScriptedModel([*STEPS, f"{mended}\n{then}\n```", "No."])
        agent = CaveAgent(model, runtime, patches=True)
        response = await agent.run("the task")
        assert content == response.content
        assert [5, 6][content == "No."] == len(model.prompts)
        assert f"{mended}\n{then}\n"[9:] in [f"{step.patch}\n" for step in response.steps]


async def test_code_after_a_patch_is_checked_by_the_rules() -> None:
    """The patch stays: it was allowed."""
    runtime = PatchableRuntime(forbidden=("secret",))
    mended = replaced("step 1", "rows = [3, 1, 2]", "rows = [3, 7, 2]").removesuffix("\n```")
    _, _, shown = await play(runtime, STEPS[0], f"{mended}\nshow(secret)\n```")
    assert shown[-1].startswith("Patched; ran again: 1.")
    assert shown[-1].endswith("Not run, against the rules:\n'secret' is blocked")
    assert {"rows": [3, 7, 2]} == runtime.laboratory.state.names()


BROKEN = RanTest(
    name="test_total",
    outcome="failed",
    error_type="AssertionError",
    message="assert total([]) == 0",
    file="test_a.py",
    span=(4, 4, 4, 25),
)


@pytest.mark.parametrize(
    ("built", "says"),
    [
        (None, []),
        (BuildResult(status="built", head=7), []),
        (
            BuildResult(
                status="built",
                head=7,
                rebuilt=("report.md", "test_a.py"),
                tests=(BROKEN, RanTest(name="test_other", outcome="passed")),
                ran={"test_a.py::test_total": "new"},
            ),
            [
                "Brought up to date: report.md.",
                "Tests: 1 of 2 run, 1 failed.",
                "test_total: AssertionError: assert total([]) == 0 (test_a.py, line 4)",
            ],
        ),
    ],
    ids=["nothing is watched over", "nothing is out of date", "a test fails"],
)
async def test_what_an_artifact_concerns_is_brought_up_to_date(
    built: BuildResult | None, says: list[str]
) -> None:
    """It is built after the patch; the model reads the result below the differences."""
    runtime = PatchableRuntime()
    runtime.built = built
    _, _, shown = await play(runtime, *STEPS, replaced("artifact total", "return len(xs)", "return xs[1]"))
    assert "def total(xs):\n    return xs[1]" == runtime.laboratory.line()[1].code
    assert "Patched; ran again: 2, 4." == shown[-1].splitlines()[0]
    assert ["#4:", "str:'' int:1", *says] == shown[-1].splitlines()[-2 - len(says) :]


async def test_a_patch_of_a_step_builds_nothing() -> None:
    """A patch that names no artifact builds none."""
    runtime = PatchableRuntime()
    runtime.built = BuildResult(status="built", head=7, rebuilt=("report.md",))
    _, _, shown = await play(runtime, *STEPS, replaced("function total", "return len(xs)", "return xs[1]"))
    assert "report.md" not in shown[-1]


async def test_the_model_call_is_named_with_the_patch() -> None:
    """As with the steps that blocks made; the response has the name of each of its calls."""
    runtime = PatchableRuntime()
    agent = CaveAgent(ScriptedModel([*STEPS[:1], patch("step 1\nrows = []"), "Done."]), runtime, patches=True)
    response = await agent.run("the task")
    assert [runtime.patches[0].cause] == [step.cause for step in response.steps if step.patch]
    assert 3 == len({step.cause for step in response.steps})
    assert ["rows = [3, 1, 2]"] == response.code_snippets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (patch("rows = 1"), "Nothing was patched: the first line of a patch is `step N`"),
        (patch("step 9\nrows = 1"), "Nothing was patched: the patch does not fit: this line has no step 9"),
        (replaced("step 1", "rows = []", "rows"), "stand nowhere in the code:\nrows = []"),
        (patch("step 1\nrows = external(2)"), "or write a block that goes on from here: there it is called."),
        (patch("step 1\nrows = []\nshow(rows[1])"), "with the patch, step 1 fails.\nError: IndexError"),
    ],
)
async def test_a_patch_that_cannot_be_applied_changes_nothing(text: str, says: str) -> None:
    """The model gets the reason."""
    runtime = PatchableRuntime()
    _, events, shown = await play(runtime, STEPS[0], text)
    assert says in shown[-1]
    assert ([1], {"rows": [3, 1, 2]}) == (
        [record.number for record in runtime.laboratory.line()],
        runtime.laboratory.state.names(),
    )
    assert ["execution_error"] == [event.type.value for event in events if event.content in shown[-1]][-1:]


async def test_what_is_different_may_be_too_long_to_show() -> None:
    """Head and tail are shown, with the way to read the rest, as for a block."""
    runtime = PatchableRuntime()
    answers = [block("n = 1"), block("show('x' * n)"), patch("step 1\nn = 500"), "Done."]
    agent = CaveAgent(ScriptedModel(answers), runtime, patches=True, max_exec_output=200)
    events = [event async for event in agent.stream_events("the task")]
    (shown,) = [event.content for event in events if event.type.value == "execution_output_exceeded"]
    assert "characters left out; read_output(3)[" in shown
    assert shown in agent.messages[-2].content


async def test_code_after_a_patch_shows_what_the_model_wants_to_see() -> None:
    """Of other outputs that differ now it reads which, and how to get them: each further call pays for them."""
    runtime = PatchableRuntime()
    answers = [block("n = 1"), block("show('x' * n)"), patch("step 1\n-n = 1\n+n = 500\nshow(n)"), "Done."]
    agent = CaveAgent(ScriptedModel(answers), runtime, patches=True)
    events = [event async for event in agent.stream_events("the task")]
    report = "Patched; ran again: 1-2.\nChanged: n.\nOutput differs: 2; read_output(3) reads it."
    assert [report] == [event.content for event in events if event.type.value == "execution_output_exceeded"]
    assert f"{report}\n\n#5:\nstr:'' int:500" == agent.messages[-2].content
    (kept,) = [function for function in runtime.functions if function.name == "read_output"]
    assert kept.func(3).endswith(f"#2:\nstr:'' str:{'x' * 500!r}")


async def test_a_report_is_short() -> None:
    """Without such code the outputs are shown, up to a bound."""
    runtime = PatchableRuntime()
    _, _, shown = await play(
        runtime, block("n = 1"), block("show('x' * n)"), patch("step 1\n-n = 1\n+n = 5000")
    )
    assert 1000 < len(shown[-1]) < 1700
    assert "characters left out; read_output(3)[" in shown[-1]


def test_a_patch_that_nobody_waits_for_is_told_of() -> None:
    """The next task finds a conversation in which each block has an outcome."""
    agent = core(patches=True)
    answered = [RuntimeDescription(), None, TextDelta(patch("step 1\nx = 1"))]
    answered += [None, TurnEnded("stop", TokenUsage()), None]
    commands = drive(agent.run("the task", NOW), *answered)
    assert isinstance(commands[-1], PlanPatch)
    assert "Interrupted; nothing was patched, or all of it." == agent.messages[-2].content


async def test_the_rules_hold_for_patched_code() -> None:
    """A step that rules refuse may not be patched in."""
    runtime = PatchableRuntime(forbidden=("secret",))
    _, events, shown = await play(runtime, STEPS[0], patch("step 1\nrows = secret"))
    assert "Not run, against the rules:\n'secret' is blocked" == shown[-1]
    assert "security_error" in [event.type.value for event in events]
    assert ["rows = [3, 1, 2]"] == runtime.laboratory.executed


async def told(*answers: str, patches: bool = True, tasks: int = 1) -> list[int]:
    """In which messages a model is told how to patch."""
    agent = CaveAgent(ScriptedModel([*answers, "Done."] * tasks), PatchableRuntime(), patches=patches)
    for _ in range(tasks):
        await agent.run("the task")
    return [number for number, message in enumerate(agent.messages) if HOW_TO_PATCH in message.content]


async def test_a_model_is_told_of_patches_when_there_is_something_to_patch() -> None:
    """Not in the system prompt, which each call pays for: once, where a step fails, after some steps, with a further
    task. One that has written a patch knows how."""
    assert [] == await told("Done.")
    assert [] == await told(*[block("x = 1")] * 4)
    assert [3] == await told(block("1 / 0"), block("1 / 0"))
    assert [11] == await told(*[block(f"x = {n}") for n in range(6)])
    assert [5] == await told(block("x = 1"), tasks=2)
    assert [] == await told(block("1 / 0"), tasks=2, patches=False)
    assert [] == await told(block("rows = [3]"), patch("step 1\nrows = [3, 4]"), block("rows[2]"))


async def test_patches_need_a_runtime_with_a_history() -> None:
    """The agent is refused before anything runs."""
    with pytest.raises(UsageError, match="InProcessRuntime cannot be patched"):
        await CaveAgent(ScriptedModel(["Done."]), InProcessRuntime(), patches=True).run("the task")
