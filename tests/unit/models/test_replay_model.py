"""Recordings are replayed for the same prompts only."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from cenote.models import (
    Message,
    ModelTurn,
    ModelUnavailableError,
    OpenAIServerModel,
    ReplayMismatchError,
    ReplayModel,
    ScriptedModel,
    ScriptExhaustedError,
    TokenUsage,
)
from cenote_security.errors import UsageError

FIRST = [Message.system("Be brief."), Message.user("6 * 7?")]
SECOND = [*FIRST, Message.assistant("42"), Message.user("Sure?")]
TURNS = [ModelTurn("42", "stop", TokenUsage(9, 4, 1)), ModelTurn("Quite sure.", "length", TokenUsage(20))]


async def record(path: Path) -> None:
    model = ReplayModel.record(path, ScriptedModel(TURNS, model_id="gpt-4.1"))
    assert TURNS == [await model.complete(prompt) for prompt in (FIRST, SECOND)]


async def test_a_recorded_conversation_is_replayed(tmp_path: Path) -> None:
    """Texts, finish reasons, usage and the model's name."""
    await record(tmp_path / "r.jsonl")
    model = ReplayModel(tmp_path / "r.jsonl")
    assert TURNS == [await model.complete(prompt) for prompt in (FIRST, SECOND)]
    assert "gpt-4.1" == model.model_id


async def test_it_is_streamed(tmp_path: Path) -> None:
    """In pieces, with the turn last."""
    await record(tmp_path / "r.jsonl")
    model = ReplayModel(tmp_path / "r.jsonl", chunk_size=1)
    assert ["4", "2", TURNS[0]] == [chunk async for chunk in model.stream(FIRST)]


async def test_several_agents_may_ask_in_another_order(tmp_path: Path) -> None:
    """Concurrent sub-agents finish in any order."""
    await record(tmp_path / "r.jsonl")
    model = ReplayModel(tmp_path / "r.jsonl")
    assert [TURNS[1], TURNS[0]] == [await model.complete(prompt) for prompt in (SECOND, FIRST)]


async def test_another_prompt_is_refused_with_the_difference(tmp_path: Path) -> None:
    """The reader sees the change without opening a file; the turn stays unused."""
    await record(tmp_path / "r.jsonl")
    model = ReplayModel(tmp_path / "r.jsonl")
    with pytest.raises(ReplayMismatchError) as caught:
        await model.complete([FIRST[0], Message.user("6 * 8?")])
    lines = str(caught.value).splitlines()
    assert "turn 1 of 2" in lines[0]
    assert ["-6 * 7?", "+6 * 8?"] == [line for line in lines[3:] if line[0] in "+-"]
    assert TURNS[0] == await model.complete(FIRST)


async def test_a_long_difference_is_cut(tmp_path: Path) -> None:
    """Prompts are long."""
    await record(tmp_path / "r.jsonl")
    with pytest.raises(ReplayMismatchError, match="the difference goes on") as caught:
        await ReplayModel(tmp_path / "r.jsonl").complete([Message.user("long\n" * 10_000)])
    assert len(str(caught.value)) < 5_000


async def test_a_turn_answers_once(tmp_path: Path) -> None:
    """An extra prompt is a separate error."""
    await record(tmp_path / "r.jsonl")
    model = ReplayModel(tmp_path / "r.jsonl")
    for prompt in (FIRST, SECOND):
        await model.complete(prompt)
    with pytest.raises(ScriptExhaustedError, match="all 2 turns"):
        await model.complete(FIRST)


async def test_each_turn_is_on_disk_when_it_ends(tmp_path: Path) -> None:
    """A program that crashes in the third turn has recorded two; the file that replaced the old one is complete."""
    path = tmp_path / "r.jsonl"
    path.write_text("an old recording")
    model = ReplayModel.record(path, ScriptedModel(["one", "two"]))
    assert "an old recording" == path.read_text()
    await model.complete(FIRST)
    assert "one" == (await ReplayModel(path).complete(FIRST)).text


async def test_unfinished_turns_are_not_recorded(tmp_path: Path) -> None:
    """Neither a failure nor a stream that was closed early has an answer to replay."""
    path = tmp_path / "r.jsonl"
    model = ReplayModel.record(path, ScriptedModel([ModelUnavailableError("busy"), "long answer", "ok"]))
    with pytest.raises(ModelUnavailableError):
        await model.complete(FIRST)
    async with aclosing(model.stream(FIRST)) as chunks:
        await anext(chunks)
    await model.complete(SECOND)
    assert "0 of 1 turns" in repr(ReplayModel(path))


async def test_credentials_are_not_written(tmp_path: Path) -> None:
    """Neither those of requests, which are never recorded, nor a key that a text repeats."""
    key = "sk-very-secret-0123456789"

    class Echo(OpenAIServerModel):
        async def stream(self, messages):  # type: ignore[no-untyped-def,override]
            yield ModelTurn(f"your key is {key}", "stop", TokenUsage())

    model = ReplayModel.record(tmp_path / "r.jsonl", Echo("m", api_key=key))
    await model.complete([Message.user(f"my key is {key}")])
    written = (tmp_path / "r.jsonl").read_text()
    assert key not in written
    assert "my key is ***" in written
    assert key not in repr(model)


def test_a_recording_needs_a_folder(tmp_path: Path) -> None:
    """Reported before the first turn is paid for."""
    with pytest.raises(UsageError, match="folder"):
        ReplayModel.record(tmp_path / "missing" / "r.jsonl", ScriptedModel([]))


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    """At once, not at the first prompt."""
    with pytest.raises(UsageError, match=r"r\.jsonl"):
        ReplayModel(tmp_path / "r.jsonl")
