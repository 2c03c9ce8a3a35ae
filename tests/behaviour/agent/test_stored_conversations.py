"""What an agent stores of its conversation and outputs, how it is stored, and when it is shortened."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from cenote.agent import CaveAgent, CompactionPolicy
from cenote.agent.vocabulary.events import EventType
from cenote.models import Message, ScriptedModel
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError


def block(code: str) -> str:
    return f"```python\n{code}\n```"


async def test_kinds_survive_storing_and_resuming() -> None:
    """As JSON; the prompts stay the same, and so do the kinds of the parts."""
    with PythonRuntime() as runtime:
        agent = CaveAgent(ScriptedModel([block("# count\nprint(1)"), "One."]), runtime)
        await agent.run("Count.")
        stored = json.dumps([asdict(message) for message in agent.transcript])
        resumed = CaveAgent(
            ScriptedModel([]), runtime, messages=[Message(**fields) for fields in json.loads(stored)]
        )
        kinds = ["task", "code", "output", "answer"]
        assert kinds == [message.kind for message in agent.transcript[1:]]
        assert kinds == [message.kind for message in resumed.transcript]
        assert agent.messages[1:] == resumed.messages


async def test_resumed_outputs_are_put_away_each_under_its_own_number() -> None:
    """Two long outputs of an earlier conversation do not replace each other."""
    said = [Message("user", "Go.")]
    for text in ("first", "second", "third", "fourth"):
        code, output = Message("assistant", block(f"print({text!r})"), "code"), f"Output:\n{text} " * 60
        said += [code, Message("user", output, "output")]
    with PythonRuntime() as runtime:
        policy = CompactionPolicy(trigger=0.2, target=0.1, kept_steps=2, summarise=False)
        model = ScriptedModel([block("print(read_output(1)[:20], read_output(2)[:20])"), "done"])
        agent = CaveAgent(model, runtime, messages=said, compaction=policy, context_window=2000)
        seen = [e.content async for e in agent.stream_events("On.") if e.type is EventType.EXECUTION_OUTPUT]
    assert "Output:\nfirst" in seen[0]
    assert "Output:\nsecond" in seen[0]


async def test_messages_are_added_between_tasks() -> None:
    """A user's message from elsewhere, and a text that stands for the model's answer."""
    model = ScriptedModel(["one", "two"])
    with PythonRuntime() as runtime:
        agent = CaveAgent(model, runtime)
        await agent.run("First.")
        agent.add_message(Message.user("Meanwhile."))
        agent.add_message(Message.assistant("Noted."))
        await agent.run("Second.")
    texts = ["First.", "one", "Meanwhile.", "Noted.", "Second.", "two"]
    assert texts == [message.content for message in agent.messages[1:]]
    with pytest.raises(UsageError, match="a message is"):
        agent.add_message("text")  # type: ignore[arg-type]


def test_a_kind_is_one_that_there_is() -> None:
    """It makes no difference between messages, and a kind that its role cannot have is rejected."""
    assert Message("user", "x", "note") == Message("user", "x")
    with pytest.raises(UsageError, match="one of task, answer"):
        Message("user", "x", "thought")  # type: ignore[arg-type]
    agent = CaveAgent(ScriptedModel([]), messages=[Message("user", "x", "answer")])
    assert ["task"] == [message.kind for message in agent.transcript]


async def test_another_model_summarises() -> None:
    """It does only that; tokens are counted by the policy."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    summariser = ScriptedModel(["They talked."])
    policy = CompactionPolicy(trigger=0.5, target=0.2, model=summariser, count_tokens=count)
    said = [Message.user("a " * 2000), Message.assistant("b " * 2000)]
    with PythonRuntime() as runtime:
        agent = CaveAgent(
            ScriptedModel(["done"]), runtime, messages=said, compaction=policy, context_window=10_000
        )
        response = await agent.run("Go.")
    assert "done" == response.content
    assert any("They talked." in message.content for message in agent.messages)
    assert counted


@pytest.mark.parametrize(
    "wrong", [{"trigger": 0}, {"target": 0.9}, {"kept_steps": 0}, {"model": 1}, {"count_tokens": 1}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        CompactionPolicy(**wrong)  # type: ignore[arg-type]


async def test_long_outputs_are_variables_where_that_is_asked_for() -> None:
    """The next free number, one for each output; a prefix that is not a name is refused."""
    code = [block("_out_1 = 0"), block("print('x' * 500)"), block("print('y' * 500)"), block("print(_out_3)")]
    with PythonRuntime() as runtime:
        agent = CaveAgent(
            ScriptedModel([*code, "done"]), runtime, max_exec_output=200, output_variables="_out"
        )
        await agent.run("Go.")
        assert ("x" * 500, "y" * 500) == (runtime.retrieve("_out_2"), runtime.retrieve("_out_3"))
    with pytest.raises(UsageError, match="identifier"):
        CaveAgent(ScriptedModel([]), output_variables="1st")


@pytest.mark.parametrize("indent", ["   ", "     ", "\t"])
@pytest.mark.parametrize("first", [False, True])
async def test_a_block_that_is_indented_as_a_whole_runs(indent: str, first: bool) -> None:
    """As models write them inside a list; first: with its opening fence."""
    code = f"{indent * first}```python\n{indent}for i in [1]:\n{indent}    print(i + 41)\n{indent}```"
    with PythonRuntime() as runtime:
        agent = CaveAgent(ScriptedModel([f"1. Do:\n{code}", "done"]), runtime)
        seen = [e.content async for e in agent.stream_events("Go.") if e.type is EventType.EXECUTION_OUTPUT]
    assert ["42"] == seen
