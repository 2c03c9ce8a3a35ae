"""CaveAgent over a runtime without a jail and a scripted model: behaviour that users see."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pytest
from tests.fakes.in_process_runtime import InProcessRuntime

from cenote.agent import (
    AgentBusyError,
    CaveAgent,
    CodeDeltaEvent,
    CodeEvent,
    Event,
    EventType,
    ExecutionOutputEvent,
    ExecutionStatus,
    FinalResponseEvent,
    LogLevel,
    StoppedEvent,
    StopReason,
    TextEvent,
)
from cenote.models import Message, Model, ModelChunk, ModelTurn, OpenAIServerModel, ScriptedModel, TokenUsage
from cenote.models.errors import ModelResponseError, ModelUnavailableError, ScriptExhaustedError
from cenote.runtime.inject.injectables import Function, Variable
from cenote_security.errors import CenoteError, UsageError
from cenote_worker.execution.results import ExecutionResult


def block(code: str) -> str:
    return f"```python\n{code}\n```"


class Patient(Model):
    """A model that yields its first words and then waits forever."""

    model_id = "patient"

    def __init__(self) -> None:
        self.closed = 0
        self.waiting = asyncio.Event()

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        try:
            yield "Let me think. "
            self.waiting.set()
            await asyncio.Event().wait()
        finally:
            self.closed += 1


class Careless(Model):
    """A model that does not end its turn."""

    model_id = "careless"

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield "Hm."


class Unclosed(Model):
    """A model as type checkers allow it: an iterator that is not a generator and cannot be closed."""

    def __init__(self, script: list[ModelChunk]) -> None:
        self.model_id = "unclosed"
        self._script = script

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[ModelChunk]:
        return self

    def __aiter__(self) -> AsyncIterator[ModelChunk]:
        return self

    async def __anext__(self) -> ModelChunk:
        return self._script.pop(0)


class Natural(Model):
    """A model as most users would write it."""

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[ModelChunk]:
        yield "Hm."
        yield ModelTurn("Hm.", "stop", TokenUsage())


class Answering(Model):
    """A model that returns its answer instead of yielding it."""

    async def stream(self, messages: Sequence[Message]) -> str:  # type: ignore[override]
        return "Hm."


class Blocking(Model):
    """A model that is not async."""

    def stream(self, messages: Sequence[Message]) -> Iterator[str]:  # type: ignore[override]
        yield "Hm."


class Structured(Model):
    """A model that yields its server's chunks."""

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield {"content": "Hm."}  # type: ignore[misc]


class Unmetered(Model):
    """A model that reports no usage."""

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        yield ModelTurn("Hm.", "stop", None)  # type: ignore[arg-type]


async def test_a_task_is_done_in_the_runtime() -> None:
    """The model's code works on injected values, and its results stay in the runtime."""
    runtime = InProcessRuntime(
        Variable("secret", "!dlrow ,olleH", "A reversed message"),
        Variable("greeting", "", "Store the reversed message"),
        Function(lambda s: s[::-1], "Reverse a string", name="reverse"),
    )
    model = ScriptedModel([block("greeting = reverse(secret)\nprint(greeting)"), "It says: Hello, world!"])
    response = await CaveAgent(model, runtime).run("Reverse the secret")
    assert "Hello, world!" == runtime.namespace["greeting"]
    assert ("It says: Hello, world!", ExecutionStatus.SUCCESS, 2, 10) == (
        response.content,
        response.status,
        response.steps_taken,
        response.max_steps,
    )
    assert ["greeting = reverse(secret)\nprint(greeting)"] == response.code_snippets
    assert response.token_usage.prompt > 0
    system = model.prompts[0][0].content
    assert "reverse(s)  # Reverse a string" in system
    assert "secret: str  # A reversed message" in system
    assert "olleH" not in system


@pytest.mark.parametrize(
    "model", [Natural(), Unclosed(["H", "m.", ModelTurn("Hm.", "stop", TokenUsage())] * 2)]
)
async def test_models_of_users(model: Model) -> None:
    """A model that yields text and a turn answers, in an agent and by itself."""
    assert "Hm." == (await CaveAgent(model, InProcessRuntime()).run("Go.")).content
    assert "Hm." == (await model.complete([Message("user", "Go.")])).text


async def test_events_are_streamed() -> None:
    """Text, code, output, text, answer."""
    model = ScriptedModel(["Adding.\n" + block("print(1 + 1)"), "Two."])
    events = [event async for event in CaveAgent(model, InProcessRuntime()).stream_events("1 + 1?")]
    kinds = [kind.value for kind, _ in groupby(event.type for event in events)]
    assert ["text", "code_delta", "code", "execution_output", "text", "final_response", "stopped"] == kinds
    assert ["print(1 + 1)\n", "print(1 + 1)", "2", "Two.", "completed"] == [
        event.content for event in events if event.type is not EventType.TEXT
    ]
    classes = [
        TextEvent,
        CodeDeltaEvent,
        CodeEvent,
        ExecutionOutputEvent,
        TextEvent,
        FinalResponseEvent,
        StoppedEvent,
    ]
    assert classes == [kind for kind, _ in groupby(map(type, events))]
    assert Event(EventType.CODE, "print(1 + 1)") in events
    end = events[-1]
    assert isinstance(end, StoppedEvent)
    assert (StopReason.COMPLETED, 2, True) == (end.stop_reason, end.steps, end.usage.total > 0)
    assert end == pickle.loads(pickle.dumps(end))


async def test_reasoning_is_an_event() -> None:
    """Reasoning comes in a separate member or in tags before the answer; it is not part of the answer."""
    model = ScriptedModel(["<think>Two ones.</think>Two."])
    events = [event async for event in CaveAgent(model, InProcessRuntime()).stream_events("1 + 1?")]
    assert "Two ones." == "".join(event.content for event in events if event.type is EventType.THINKING)
    assert "Two." == "".join(event.content for event in events if event.type is EventType.TEXT)


async def test_a_class_that_changes_how_a_model_streams_is_asked_by_that() -> None:
    """The overridden method is used, since it also gives the reasoning."""

    class Ours(OpenAIServerModel):
        async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
            yield "Ours."
            yield ModelTurn("Ours.", "stop", TokenUsage())

    model = Ours("m", base_url="http://127.0.0.1:1/v1")
    assert "Ours." == (await CaveAgent(model, InProcessRuntime()).run("Go.")).content


async def test_long_output_can_be_read_from_the_namespace() -> None:
    """The handle in the gap works, and output read again is truncated again rather than lost."""
    runtime = InProcessRuntime()
    model = ScriptedModel(
        [
            block("print('x' * 3000 + 'needle' + 'y' * 3000)"),
            block("print(read_output(1)[2990:3010])"),
            "Found.",
        ]
    )
    await CaveAgent(model, runtime, max_exec_output=1000).run("Find it")
    assert "read_output(1)[" in model.prompts[1][-1].content
    assert "xxxxxxxxxxneedleyyyy" in model.prompts[2][-1].content
    assert "read_output" not in model.prompts[1][0].content


async def test_the_reader_of_outputs_gives_way_to_the_users_names() -> None:
    """An existing name is not overwritten; the gap names the one that works."""
    runtime = InProcessRuntime(Variable("read_output", 5))
    model = ScriptedModel([block("print('x' * 300)"), block("print(len(read_output_2(1)))"), "Done."])
    await CaveAgent(model, runtime, max_exec_output=100).run("Print")
    assert "read_output_2(1)[" in model.prompts[1][-1].content
    assert "Output:\n300" == model.prompts[2][-1].content


async def test_agents_that_share_a_runtime_have_a_reader_each() -> None:
    """Neither is listed among the tools."""
    runtime = InProcessRuntime()
    script = [block("print('x' * 300)"), "Done."]
    await CaveAgent(ScriptedModel(script), runtime, max_exec_output=100).run("a")
    second = ScriptedModel([*script, "Again."])
    agent = CaveAgent(second, runtime, max_exec_output=100)
    await agent.run("b")
    await agent.run("c")
    assert "read_output_2(1)[" in second.prompts[1][-1].content
    assert "read_output" not in second.prompts[2][0].content


async def test_several_runs_are_one_conversation() -> None:
    """The second task sees the first; `messages` is a copy."""
    model = ScriptedModel(["One.", "Two."])
    agent = CaveAgent(model, InProcessRuntime())
    await agent.run("first")
    await agent.run("second")
    assert ["first", "One.", "second"] == [m.content for m in model.prompts[1][1:]]
    agent.messages.clear()
    assert ["first", "One.", "second", "Two."] == [m.content for m in agent.messages[1:]]


async def test_an_earlier_conversation_can_be_continued() -> None:
    """It takes `messages` of another agent, without its system prompt."""
    model = ScriptedModel(["Yes."])
    messages = [Message.system("old"), Message.user("Is it?"), Message.assistant("Maybe.")]
    await CaveAgent(model, InProcessRuntime(), messages=messages).run("Well?")
    assert ["Is it?", "Maybe.", "Well?"] == [m.content for m in model.prompts[0][1:]]


async def test_two_tasks_at_once_are_refused() -> None:
    """One conversation cannot run twice at once; afterwards the agent is free again."""
    agent = CaveAgent(Patient(), InProcessRuntime())
    events = agent.stream_events("first")
    await anext(events)
    with pytest.raises(AgentBusyError, match="working on a task"):
        await agent.run("second")
    await events.aclose()
    agent.model = ScriptedModel(["Free."])
    assert "Free." == (await agent.run("third")).content


async def test_closing_the_events_ends_the_model_call() -> None:
    """No tokens are paid for that no reader receives."""
    model = Patient()
    events = CaveAgent(model, InProcessRuntime()).stream_events("Think")
    assert "Let me think. " == (await anext(events)).content
    await events.aclose()
    assert 1 == model.closed


async def test_cancelling_ends_the_model_call() -> None:
    """Also while the model sends nothing."""
    model = Patient()
    agent = CaveAgent(model, InProcessRuntime())
    task = asyncio.create_task(agent.run("Think"))
    await model.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 1 == model.closed


async def test_cancelling_ends_the_cell() -> None:
    """The runtime is interrupted; the conversation says that the block was interrupted."""
    runtime = InProcessRuntime()
    agent = CaveAgent(ScriptedModel([block("import asyncio\nawait asyncio.sleep(60)")]), runtime)
    task = asyncio.create_task(agent.run("Sleep"))
    await runtime.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 1 == runtime.cancelled
    assert "Interrupted; the block may have run in part." == agent.messages[-2].content
    assert "[This task was cancelled before an answer.]" == agent.messages[-1].content


async def test_the_time_limit_goes_to_the_runtime() -> None:
    """The runtime enforces it."""
    runtime = InProcessRuntime()
    await CaveAgent(ScriptedModel([block("1"), "ok"]), runtime, max_exec_timeout=2.5).run("x")
    assert [2.5] == runtime.timeouts


async def test_rules_are_asked_before_the_code_runs() -> None:
    """The model reads which rule it broke and continues."""
    runtime = InProcessRuntime(forbidden=["import os"])
    model = ScriptedModel([block("import os"), "I may not."])
    events = [event async for event in CaveAgent(model, runtime).stream_events("List files")]
    assert ["'import os' is blocked"] == [e.content for e in events if e.type is EventType.SECURITY_ERROR]
    assert [] == runtime.executed


async def test_a_model_that_fails_is_the_callers_to_handle() -> None:
    """The error is raised unchanged, and the agent can be used again."""
    agent = CaveAgent(ScriptedModel([ModelUnavailableError("down"), "Up again."]), InProcessRuntime())
    with pytest.raises(ModelUnavailableError):
        await agent.run("first")
    assert "Up again." == (await agent.run("second")).content


async def test_a_model_without_an_end_is_an_error_that_names_it() -> None:
    """An error in a user's own Model class."""
    with pytest.raises(ModelResponseError, match=r"Careless\.stream ended without a ModelTurn"):
        await CaveAgent(Careless(), InProcessRuntime()).run("x")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Answering(), r"Answering\.stream gave a coroutine; it is `async def` and yields the text"),
        (Blocking(), r"Blocking\.stream gave a generator; it is `async def`"),
        (Structured(), r"Structured\.stream gave a dict where text or a ModelTurn belongs"),
        (Unmetered(), r"a TokenUsage, not None; .* estimate_usage"),
    ],
)
async def test_a_model_of_ones_own_is_told_what_it_has_wrong(model: Model, message: str) -> None:
    """Classes that return something other than the port requires."""
    with pytest.raises(CenoteError, match=message):
        await CaveAgent(model, InProcessRuntime()).run("x")


def test_run_sync_works_in_a_script() -> None:
    """It works without an event loop, several times."""
    agent = CaveAgent(ScriptedModel(["One.", "Two."]), InProcessRuntime())
    assert ["One.", "Two."] == [agent.run_sync("a").content, agent.run_sync("b").content]


def test_an_error_of_run_sync_has_no_error_of_ours_behind_it() -> None:
    """A traceback would show that first: it checks whether an event loop runs, and the answer is an exception."""
    with pytest.raises(ScriptExhaustedError) as caught:
        CaveAgent(ScriptedModel([]), InProcessRuntime()).run_sync("a")
    assert caught.value.__context__ is None


async def test_run_sync_in_a_loop_says_what_to_write() -> None:
    """It could only deadlock."""
    with pytest.raises(UsageError, match=r"await agent\.run\(task\)"):
        CaveAgent(ScriptedModel([]), InProcessRuntime()).run_sync("a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_error": "explode"}, 'on_error is "keep" or "rollback"'),
        ({"model": "gpt"}, "an agent needs a model"),
        ({"runtime": object()}, "not object"),
        ({"max_exec_timeout": 0}, "max_exec_timeout"),
        ({"messages": [{"role": "user", "content": "x"}]}, "not dict"),
        ({"max_steps": 0}, "max_steps"),
        ({"system_prompt_template": "{tools}"}, "no placeholder"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    """At construction; the error says what to do."""
    with pytest.raises(UsageError, match=message):
        CaveAgent(**{"model": ScriptedModel([]), "runtime": InProcessRuntime(), **arguments})


@pytest.mark.parametrize("task", ["", "  \n", None, 5])
async def test_a_task_is_a_text(task: object) -> None:
    """With an empty task the model would invent one."""
    with pytest.raises(UsageError, match="a task is a text"):
        await CaveAgent(ScriptedModel([]), InProcessRuntime()).run(task)


async def test_a_custom_block_identifier() -> None:
    """The prompt requests it, and only such blocks are code."""
    runtime = InProcessRuntime()
    model = ScriptedModel(["```python\nno\n```\n```tool\nx = 1\n```", "Done."])
    await CaveAgent(model, runtime, python_block_identifier="tool").run("x")
    assert (["x = 1"], True) == (runtime.executed, "one ```tool block" in model.prompts[0][0].content)


async def test_custom_texts_are_honoured() -> None:
    """The agent's role, its instructions, and the whole prompt."""
    model = ScriptedModel(["ok"])
    await CaveAgent(
        model,
        InProcessRuntime(Variable("x", 1, "a number")),
        instructions="You are Ada.",
        system_instructions="Use {python_block_identifier}.",
        system_prompt_template="{instructions} {system_instructions} {variables} {functions}",
    ).run("x")
    assert "You are Ada. Use python. x: int  # a number (none)" == model.prompts[0][0].content


async def test_the_namespace_delta_is_a_setting() -> None:
    """New, changed and removed variables, in one line."""
    model = ScriptedModel([block("a = 1\nb = 2"), block("a = 'long'\ndel b"), "Done."])
    await CaveAgent(model, InProcessRuntime(), namespace_delta=True).run("x")
    assert "(no output)\n[+ a int; + b int]" == model.prompts[1][-1].content
    assert "(no output)\n[~ a str; - b]" == model.prompts[2][-1].content


async def test_a_sub_agent_is_described() -> None:
    """Its data and how to work with it; no jail is started for that."""
    sub = CaveAgent(ScriptedModel([]), InProcessRuntime(Variable("data", [], "Input")))
    lazy = CaveAgent(ScriptedModel([]))
    model = ScriptedModel(["ok"])
    await CaveAgent(model, InProcessRuntime(Variable("cleaner", sub, "Cleans"), Variable("lazy", lazy))).run(
        "x"
    )
    system = model.prompts[0][0].content
    assert "cleaner  # Cleans; has variables data\nlazy" in system
    assert "await x.run(task)" in system
    assert () == lazy.variable_names


def test_nothing_is_printed_or_logged_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    """A library is silent until its user configures logging."""
    CaveAgent(ScriptedModel([block("1 / 0"), "Sorry."]), InProcessRuntime()).run_sync("x")
    assert ("", "") == capfd.readouterr()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LogLevel.ERROR, ["execution_error"]),
        (LogLevel.INFO, ["execution_error", "final_response"]),
        (LogLevel.DEBUG, ["code", "execution_error", "final_response", "stopped"]),
    ],
)
def test_the_log_level_says_how_much_is_logged(
    level: LogLevel, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Failures; failures and answers; every block."""
    with caplog.at_level(logging.DEBUG, "cenote.agent"):
        CaveAgent(ScriptedModel([block("1 / 0"), "Sorry."]), InProcessRuntime(), log_level=level).run_sync(
            "x"
        )
    assert expected == [record.message.partition(":")[0] for record in caplog.records]


async def test_events_are_also_heard_by_who_made_the_agent() -> None:
    """The orchestrator's code awaits only the answer."""
    heard: list[str] = []
    model = ScriptedModel([block("1 + 1"), "Two."])
    agent = CaveAgent(model, InProcessRuntime(), on_event=lambda event: heard.append(event.type.value))
    await agent.run("1 + 1?")
    assert ["code_delta", "code", "execution_output", "text", "final_response", "stopped"] == list(
        dict.fromkeys(heard)
    )


async def test_what_others_did_is_told_after_a_block() -> None:
    """Each line of a result's notices is a line of the observation."""

    class Noticing(InProcessRuntime):
        async def execute(self, code: str, **options: object) -> ExecutionResult:
            result = await super().execute(code, **options)
            return replace(result, news=("a new `cleaned` is there",))

    model = ScriptedModel([block("print(1)"), "Done."])
    await CaveAgent(model, Noticing()).run("the task")
    assert "Output:\n1\n[a new `cleaned` is there]" == model.prompts[1][-1].content


def test_settings_of_the_wrong_kind_are_refused() -> None:
    """Each is reported when the agent is made, before a model is paid for an answer."""
    mistakes: dict[str, dict[str, object]] = {
        "max_steps must be at least 1, not 'x'": {"max_steps": "x"},
        "max_history must be at least 4": {"max_history": "x"},
        "skills are Skill objects, not str": {"skills": ["x"]},
        "log_level is one of LogLevel.ERROR": {"log_level": "x"},
        "python_block_identifier is the word": {"python_block_identifier": ""},
    }
    for told, settings in mistakes.items():
        with pytest.raises(UsageError, match=told):
            CaveAgent(ScriptedModel([]), InProcessRuntime(), **settings)  # type: ignore[arg-type]
