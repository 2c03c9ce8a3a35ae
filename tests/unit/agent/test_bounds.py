"""Every run ends: by time, by tokens, by the length of an answer, by a loop, by a failure of its model."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.fakes.in_process_runtime import InProcessRuntime
from tests.support.agent.playbook import Playbook, Says, block, core, printed, words
from tests.support.overdue import LIMITS

from cenote.agent import (
    AgentResponse,
    AnswerTimeoutError,
    CaveAgent,
    ExecutionStatus,
    StoppedEvent,
    StopReason,
)
from cenote.agent.decide.limits import Bounds
from cenote.models import Message, Model, ModelChunk, ModelTurn, ModelUnavailableError, ScriptedModel
from cenote.models.base import ReasoningModel
from cenote.models.messages import ReasonedChunk, ReasoningDelta, TokenUsage
from cenote_security.errors import UsageError
from cenote_worker.execution.results import VariableInfo


class Endless(Model):
    """Writes without end."""

    def __init__(self, piece: str, first: str = "") -> None:
        self.piece, self.first = piece, first
        self.written = self.calls = 0

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        self.calls += 1
        for piece in itertools.chain([self.first], itertools.repeat(self.piece)):
            self.written += len(piece)
            if piece:
                yield piece
            await asyncio.sleep(0)


class Silent(Model):
    """Never yields anything."""

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        await asyncio.Event().wait()
        yield ModelTurn("", "stop", TokenUsage())


class Reasoning(ReasoningModel):
    """Thinks at length, apart from its answer, and then writes on after its block, or fails."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.calls = 0

    async def stream_with_reasoning(self, messages: Sequence[Message]) -> AsyncGenerator[ReasonedChunk, None]:
        self.calls += 1
        if self.calls == 2:
            yield "Done."
            yield ModelTurn("Done.", "stop", TokenUsage(prompt=1, completion=1))
            return
        yield ReasoningDelta("think " * 500)
        if self.fails:
            raise ModelUnavailableError("lost")
        yield f"{block('x = 1')}\nIt printed " + "nothing. " * 1000
        raise AssertionError("the answer is stopped here")


def ended(response: AgentResponse) -> tuple[ExecutionStatus, StopReason]:
    return response.status, response.stop_reason


async def test_the_time_of_a_run_ends_a_silent_model() -> None:
    """It ends in the middle of a call; the response and the last event say so."""
    agent = CaveAgent(Silent(), InProcessRuntime(), max_run_time=0.05)
    *_, last = [event async for event in agent.stream_events("x")]
    assert isinstance(last, StoppedEvent)
    assert (StopReason.TIMEOUT, 1, "timeout") == (last.stop_reason, last.steps, last.content)
    assert last.elapsed >= 0.05
    assert "[This task ended without an answer: timeout.]" == agent.messages[-1].content


async def test_the_time_of_a_run_may_be_over_before_the_runtime_is_there() -> None:
    """A jail that takes long to start: the run ends in its order all the same, and a further one goes on."""

    class Slow(InProcessRuntime):
        async def describe(self) -> list[VariableInfo]:
            if not self.started.is_set():
                self.started.set()
                await asyncio.Event().wait()
            return await super().describe()

    agent = CaveAgent(ScriptedModel(["Done."]), Slow(), max_run_time=0.05)
    response = await agent.run("the task")
    assert (StopReason.TIMEOUT, "", 0) == (response.stop_reason, response.content, response.steps_taken)
    assert StopReason.COMPLETED is (await CaveAgent(agent.model, agent.runtime).run("the task")).stop_reason


@pytest.mark.slow
async def test_the_time_of_a_run_ends_a_cell() -> None:
    """The cell gets the remaining time, and its output stays in the conversation."""
    for limit in LIMITS:  # with more time if it was over before the cell began
        runtime = InProcessRuntime()
        model = ScriptedModel([block("import asyncio\nawait asyncio.sleep(600)"), "Never."])
        response = await CaveAgent(model, runtime, max_run_time=limit, max_exec_timeout=100).run("x")
        assert (ExecutionStatus.INCOMPLETE, StopReason.TIMEOUT) == ended(response)
        if runtime.timeouts:
            break
    assert 0 < (runtime.timeouts[-1] or 0) <= limit
    assert 1 == len(model.prompts)


async def test_an_answer_has_a_time() -> None:
    """It is a failure of the model, which a caller can choose to treat as an end of the run."""
    with pytest.raises(AnswerTimeoutError, match="max_answer_time"):
        await CaveAgent(Endless("a "), InProcessRuntime(), max_answer_time=0.05, max_answer_length=None).run(
            "x"
        )
    agent = CaveAgent(Silent(), InProcessRuntime(), max_answer_time=0.05, on_model_error="stop")
    response = await agent.run("x")
    assert (ExecutionStatus.INCOMPLETE, StopReason.MODEL_ERROR) == ended(response)
    assert response.model_error.startswith("AnswerTimeoutError: the answer was not there after 0.05 s")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "```python\n", "<think>"])
async def test_an_answer_has_a_length_by_default(first: str) -> None:
    """In words, in a block, in reasoning: a small model can repeat itself without end."""
    model = Endless("x = 1\n" * 100, first)
    response = await CaveAgent(model, InProcessRuntime()).run("x")
    assert (ExecutionStatus.INCOMPLETE, StopReason.INCOMPLETE) == ended(response)
    assert [] == response.code_snippets
    assert model.written < 500_000 * model.calls


def test_tokens_of_prompts_have_a_limit() -> None:
    """No call is made that would exceed the limit, by our own count and by the server's reports."""
    first = Playbook(["Done."])
    first.run(core())
    counted = sum(words(message.content) + 4 for message in first.prompts[0])
    world = Playbook([block("x"), "Done."], [printed("1")])
    response = world.run(
        core(bounds=Bounds(input_tokens=counted + 99))
    )  # the first one took 100, by the server's report
    assert (ExecutionStatus.INCOMPLETE, StopReason.BUDGET_EXHAUSTED) == ended(response)
    assert (1, 100, 2) == (len(world.prompts), response.token_usage.prompt, response.steps_taken)


@pytest.mark.parametrize("limits", [Bounds(output_tokens=30), Bounds(total_tokens=600)])
def test_tokens_of_an_answer_have_a_limit(limits: Bounds) -> None:
    """It is neither read beyond the limit nor run."""
    world = Playbook([Says("word " * 1000)])
    response = world.run(core(bounds=limits))
    assert (ExecutionStatus.INCOMPLETE, StopReason.BUDGET_EXHAUSTED) == ended(response)
    assert (1, 1) == (world.stopped, len(world.prompts))
    assert (
        response.token_usage.completion <= 32 if limits.output_tokens else response.token_usage.total <= 602
    )


def test_a_prompt_that_is_beyond_the_limit_is_not_sent() -> None:
    """No tokens are spent."""
    world = Playbook(["Hello."])
    response = world.run(core(bounds=Bounds(total_tokens=1)))
    assert (StopReason.BUDGET_EXHAUSTED, [], 0) == (
        response.stop_reason,
        world.prompts,
        response.token_usage.total,
    )


def test_within_its_limits_a_run_is_not_disturbed() -> None:
    """A run exactly at the limit continues."""
    world = Playbook([block("x"), "Done."], [printed("1")])
    bounds = Bounds(total_tokens=10_000, input_tokens=10_000, output_tokens=10_000)
    assert (ExecutionStatus.SUCCESS, StopReason.COMPLETED) == ended(world.run(core(bounds=bounds)))


def test_the_same_block_with_the_same_output_three_times_is_a_loop() -> None:
    """The model gets a warning the second time."""
    world = Playbook([block("look()")] * 5, [printed("1")] * 5)
    response = world.run(core())
    assert (ExecutionStatus.INCOMPLETE, StopReason.LOOPING) == ended(response)
    assert (3, 3) == (len(world.executed), response.steps_taken)
    assert "Output:\n1" == world.prompts[1][-1].content
    assert "same output" in world.prompts[2][-1].content


def test_refused_blocks_are_a_loop_too() -> None:
    """None of them has run."""
    world = Playbook([block("import os")] * 5, violations={"import os": ("os is blocked",)})
    assert StopReason.LOOPING is world.run(core()).stop_reason


@pytest.mark.parametrize(
    ("codes", "outputs"),
    [("aaba", "1111"), ("aaaa", "1212"), ("abab", "1111")],
    ids=["another block between", "another output", "in turns"],
)
def test_what_changes_is_no_loop(codes: str, outputs: str) -> None:
    """Neither a block that waits for something nor one that is repeated later."""
    world = Playbook([*map(block, codes), "Done."], [*map(printed, outputs)])
    assert StopReason.COMPLETED is world.run(core()).stop_reason


def test_a_model_error_can_be_an_end() -> None:
    """With what was done and said before it."""
    world = Playbook([block("x"), Says("", fails=ModelUnavailableError("down"))], [printed("1")])
    response = world.run(core(stops_on_model_error=True))
    assert (ExecutionStatus.INCOMPLETE, StopReason.MODEL_ERROR) == ended(response)
    assert ("ModelUnavailableError: down", ["x"], 2) == (
        response.model_error,
        response.code_snippets,
        response.steps_taken,
    )


async def test_an_error_of_a_users_own_model_can_be_an_end_too() -> None:
    """It need not be a ModelError."""

    class Broken(Model):
        async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
            yield "Half"
            raise ConnectionError("reset")

    response = await CaveAgent(Broken(), InProcessRuntime(), on_model_error="stop").run("x")
    assert StopReason.MODEL_ERROR is response.stop_reason
    assert "ConnectionError: reset" in response.model_error
    with pytest.raises(ConnectionError):
        await CaveAgent(Broken(), InProcessRuntime()).run("x")


@pytest.mark.parametrize(
    "setting",
    [
        {"max_run_time": 0},
        {"max_total_tokens": 0},
        {"max_input_tokens": -1},
        {"max_output_tokens": 1.5},
        {"max_answer_length": True},
        {"max_answer_time": "x"},
        {"on_model_error": "ignore"},
    ],
)
def test_limits_that_make_no_sense_are_refused(setting: dict[str, object]) -> None:
    """The error names them."""
    with pytest.raises(UsageError, match=next(iter(setting))):
        CaveAgent(ScriptedModel([]), InProcessRuntime(), **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", [False, True])
async def test_reasoning_counts_where_no_server_reports(fails: bool) -> None:
    """The provider charges for it: of an answer that was stopped, and of one that failed before its text came."""
    agent = CaveAgent(Reasoning(fails), InProcessRuntime(), on_model_error="stop")
    response = await agent.run("x")
    assert (StopReason.MODEL_ERROR if fails else StopReason.COMPLETED) is response.stop_reason
    assert 450 <= response.token_usage.completion <= 700
    assert response.token_usage.estimated
