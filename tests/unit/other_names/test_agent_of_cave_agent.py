"""A script of the CaveAgent library: its settings, models, events and responses, over Cenote's agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import cenote.cave_agent as cave_agent
from cenote.cave_agent import CaveAgent, Compactor, IPythonRuntime, StopReason, Variable
from cenote.cave_agent.models import ModelResponse, PromptTooLongError, ProviderError, StreamResponse
from cenote.cave_agent.streams import TokenUsage
from cenote.models import ScriptedModel
from cenote_security.errors import UsageError


class Answers(cave_agent.Model):
    """A user's model in that library's interface: chunks in OpenAI's form."""

    def __init__(self, *answers: str | Exception, usage: TokenUsage | None = None, **last: Any) -> None:
        self.answers = list(answers)
        self.usage = usage
        self.last = {"content": None, "refusal": None} | last
        self.seen: list[list[dict[str, str]]] = []

    async def _complete(self, messages: list[dict[str, str]]) -> ModelResponse:
        raise NotImplementedError

    def stream(self, messages: list[dict[str, str]]) -> StreamResponse:
        self.seen.append(messages)
        answer, usage, last = self.answers.pop(0), self.usage, self.last

        class Stream(StreamResponse):
            async def _open_stream(self) -> AsyncIterator[Any]:
                return chunks()

        async def chunks() -> AsyncIterator[Any]:
            if isinstance(answer, Exception):
                raise answer
            yield chunk({"content": None, "refusal": None, "reasoning": "hm"})
            for start in range(0, len(answer), 7):
                yield chunk({"content": answer[start : start + 7], "refusal": None})
            yield chunk(last, "stop", usage)

        return Stream()


def chunk(delta: dict[str, Any], reason: str | None = None, usage: TokenUsage | None = None) -> Any:
    choice = SimpleNamespace(finish_reason=reason, delta=SimpleNamespace(**delta))
    return SimpleNamespace(usage=usage, choices=[choice])


def block(code: str) -> str:
    return f"```python\n{code}\n```"


async def events_of(agent: CaveAgent, task: str = "Go.") -> list[Any]:
    return [event async for event in agent.stream_events(task)]


def of_type(events: Sequence[Any], kind: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_a_run_tells_its_events_in_order() -> None:
    """From the user's prompt to the end, with the code, the whole output and the usage."""
    usage = TokenUsage(100, 20, 120)
    model = Answers("First:\n" + block("secret = secret[::-1]\nprint(secret)"), "It is hello.", usage=usage)
    async with IPythonRuntime(variables=[Variable("secret", "olleh")]) as runtime:
        events = await events_of(CaveAgent(model, runtime=runtime))
        assert "hello" == await runtime.retrieve("secret")
    assert isinstance(events[0], cave_agent.UserPromptEvent)
    assert "hm" == of_type(events, cave_agent.ThinkingEvent)[0].content
    assert ["secret = secret[::-1]\nprint(secret)"] == [e.code for e in of_type(events, cave_agent.CodeEvent)]
    (result,) = of_type(events, cave_agent.ExecutionResultEvent)
    assert ("hello\n", True, False) == (result.output, result.success, result.persisted)
    stopped = events[-1]
    assert ("It is hello.", StopReason.COMPLETED, 2) == (stopped.content, stopped.stop_reason, stopped.steps)
    assert TokenUsage(200, 40, 240) == stopped.usage


async def test_the_conversation_is_in_its_parts_and_goes_on_elsewhere() -> None:
    """Each message has the class of its kind; another agent accepts them."""
    async with IPythonRuntime() as runtime:
        agent = CaveAgent(ScriptedModel([block("print(1)"), "done"]), runtime=runtime)
        await agent.run("Go.")
        agent.add_message(cave_agent.UserMessage("By the way: hurry."))
        kinds = [type(message).__name__ for message in agent.messages]
        parts = "SystemMessage UserMessage CodeExecutionMessage ExecutionResultMessage AssistantMessage UserMessage"
        assert parts.split() == kinds
        later = CaveAgent(ScriptedModel([]), runtime=runtime, messages=agent.messages)
        assert kinds[1:] == [type(message).__name__ for message in later.messages]


async def test_a_long_output_is_a_variable() -> None:
    """The whole output, under a free name; the model reads that name, and its code the text."""
    code = block("_output_1 = 'mine'\nprint('x' * 9000)")
    model = ScriptedModel([code, block("print(_output_1, len(_output_2))"), "done"])
    async with IPythonRuntime() as runtime:
        agent = CaveAgent(model, runtime=runtime, exec_output_preview_chars=300)
        first, second = of_type(await events_of(agent), cave_agent.ExecutionResultEvent)
        assert (True, "_output_2", 9001) == (first.persisted, first.persisted_variable, len(first.output))
        assert "mine 9001\n" == second.output
        (shown,) = [m for m in agent.messages if "_output_2[" in m.content]
        assert len(shown.content) < 600
        resumed = ScriptedModel([block("print('y' * 9000)"), "done"])
        agent = CaveAgent(resumed, messages=[cave_agent.UserMessage("see _output_7")], runtime=runtime)
        (again,) = of_type(await events_of(agent), cave_agent.ExecutionResultEvent)
        assert "_output_8" == again.persisted_variable


async def test_failures_end_a_run_with_their_reason() -> None:
    """A model's failure is not an exception; a refusal is an answer; a cancelled run reports it."""
    broken = await CaveAgent(Answers(ValueError("no such thing"))).run("Go.")
    assert (StopReason.MODEL_ERROR, False) == (broken.stop_reason, broken.completed)
    assert "no such thing" in broken.model_error
    declined = await CaveAgent(Answers("", refusal="I cannot.")).run("Go.")
    assert (StopReason.COMPLETED, "I cannot.") == (declined.stop_reason, declined.content)
    limited = await CaveAgent(ScriptedModel([block("print(1)")] * 2), max_steps=1).run("Go.")
    assert StopReason.MAX_STEPS is limited.stop_reason


async def test_a_cell_that_takes_too_long_is_ended() -> None:
    model = ScriptedModel([block("kept = 1"), block("while True: pass"), "done"])
    async with IPythonRuntime() as runtime:
        events = await events_of(CaveAgent(model, runtime=runtime, max_exec_timeout=0.5))
        assert [cave_agent.ExecutionTimeoutEvent(0.5)] == of_type(events, cave_agent.ExecutionTimeoutEvent)
        assert 1 == await runtime.get_from_namespace("kept")


async def test_a_cancelled_run_ends_with_its_event() -> None:
    """It also raises the cancellation."""
    seen: list[Any] = []

    async def run() -> None:
        async for event in agent.stream_events("Go."):
            seen.append(event)
            if isinstance(event, cave_agent.CodeEvent):
                asyncio.get_running_loop().call_soon(task.cancel)

    agent = CaveAgent(ScriptedModel([block("while True: pass")]))
    task = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await task
    await agent.runtime.stop()
    assert StopReason.CANCELLED is seen[-1].stop_reason


async def test_a_prompt_that_is_too_long_is_made_shorter() -> None:
    """By the compactor's own model, if it has one."""
    summariser = Answers("They said things.")
    model = Answers(PromptTooLongError("too long"), "done")
    compactor = Compactor(summariser, context_window=40_000, token_estimator=len)
    said = [cave_agent.UserMessage("word " * 300), cave_agent.AssistantMessage("word " * 300)]
    agent = CaveAgent(model, messages=said, compactor=compactor)
    events = await events_of(agent)
    assert StopReason.COMPLETED is events[-1].stop_reason
    assert ["compacting", "compacted"] == [e.status.value for e in of_type(events, cave_agent.StatusEvent)]
    assert 1 == len(summariser.seen)
    assert of_type(agent.messages, cave_agent.SummaryMessage)


async def test_an_overridden_execute_is_asked() -> None:
    """A subclass of a runtime may behave differently; its failures are the runtime's."""

    class Logging(IPythonRuntime):
        async def execute(self, code: str) -> Any:
            ran.append(code)
            return await super().execute(code)

    class Broken(IPythonRuntime):
        async def execute(self, code: str) -> Any:
            raise cave_agent.RuntimeExecutionError("gone")

    ran: list[str] = []
    async with Logging() as runtime:
        response = await CaveAgent(ScriptedModel([block("print(1)"), "done"]), runtime=runtime).run("Go.")
    assert (["print(1)"], True) == (ran, response.completed)
    response = await CaveAgent(ScriptedModel([block("1"), "done"]), runtime=Broken()).run("Go.")
    assert StopReason.RUNTIME_ERROR is response.stop_reason


def test_a_runtime_without_a_jail_is_refused() -> None:
    """The error names the alternative."""
    with pytest.raises(UsageError, match="IPythonRuntime or IPyKernelRuntime"):
        CaveAgent(ScriptedModel([]), runtime=object())


async def test_whole_answers_are_asked_for_as_there() -> None:
    """`call` has the parameters and results of that library; failures are of its classes, and of Cenote's."""

    class Failing(Answers):
        async def _complete(self, messages: list[dict[str, str]]) -> ModelResponse:
            raise ValueError("the maximum context length is 10")

    with pytest.raises(PromptTooLongError):
        await Failing().call([{"role": "user", "content": "hello"}])
    with pytest.raises(ProviderError, match="no key"):
        await cave_agent.OpenAIModel("gpt-5").call([{"role": "user", "content": "hello"}])
    with pytest.raises(ValueError, match="only one of"):
        cave_agent.OpenAIModel("gpt-5", max_tokens=1, max_completion_tokens=1)


def with_skill(runtime: IPythonRuntime | None = None) -> CaveAgent:
    def half(x: int) -> int:
        return x // 2

    skill = cave_agent.Skill(
        "halves", "Halves numbers.", "Call half.", [cave_agent.Function(half)], [Variable("unit", "m")]
    )
    return CaveAgent(ScriptedModel(["Done."]), runtime, skills=[skill])


async def test_skills_are_in_the_runtime_from_the_beginning() -> None:
    """What they export can be called, is not listed among the functions, and outlives a reset. Activating one says
    what there is."""
    agent = with_skill()
    async with agent.runtime as runtime:
        assert "activate_skill" in runtime.describe_functions()
        assert "half" not in runtime.describe_functions()
        assert "4 m\n" == (await runtime.execute("print(half(8), unit)")).stdout
        shown = (await runtime.execute("print(activate_skill('halves'))")).stdout
        assert shown.startswith("Call half.\n")
        assert "half(x: int) -> int" in shown
        await runtime.reset()
        assert "2\n" == (await runtime.execute("print(half(4))")).stdout
        with_skill(runtime=IPythonRuntime())


def test_a_skill_takes_no_name_that_exists() -> None:
    """Nothing of it is registered then. The same skill of a second agent is the same thing."""
    runtime = IPythonRuntime(variables=[Variable("unit", "km")])
    with pytest.raises(UsageError, match="'unit' already exists"):
        with_skill(runtime)
    assert "No functions available" == runtime.describe_functions()
    skill = cave_agent.Skill("halves", "d", variables=[Variable("u", "m")])
    shared = IPythonRuntime()
    for _ in range(2):
        CaveAgent(ScriptedModel([]), shared, skills=[skill])
    assert "activate_skill" in shared.describe_functions()


def test_the_system_prompt_can_be_read_before_a_task() -> None:
    """With what is registered; no jail is started for it."""
    agent = with_skill(IPythonRuntime(variables=[Variable("n", 3, "A number.")]))
    prompt = agent.build_system_prompt()
    assert "halves: Halves numbers." in prompt
    assert "n: int  # A number." in prompt
    assert "activate_skill(name)" in prompt
    assert "half(" not in prompt
    assert prompt == agent.build_system_prompt()


async def test_a_run_without_time_ends_at_once() -> None:
    """The model is not asked."""
    model = ScriptedModel(["Done."])
    response = await CaveAgent(model, max_run_time=0.0).run("Go.")
    assert (StopReason.TIMEOUT, 0, 0) == (response.stop_reason, response.steps, len(model.prompts))
