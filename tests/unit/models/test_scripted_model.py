"""A script is played as written, and its end is named."""

from __future__ import annotations

import pytest

from cenote.models import (
    ContextLengthError,
    Message,
    ModelChunk,
    ModelInterruptedError,
    ModelTurn,
    ScriptedModel,
    ScriptExhaustedError,
    TokenUsage,
    estimate_usage,
)
from cenote_security.errors import UsageError

PROMPT = [Message.user("What is 6 * 7?")]


async def collect(model: ScriptedModel, into: list[ModelChunk]) -> list[ModelChunk]:
    async for chunk in model.stream(PROMPT):
        into.append(chunk)
    return into


async def test_turns_come_in_order() -> None:
    """One per call."""
    model = ScriptedModel(["one", "two"])
    assert ["one", "two"] == [(await model.complete(PROMPT)).text for _ in range(2)]


@pytest.mark.parametrize(
    ("size", "pieces"), [(1, ["a", "b", "c", "d", "e"]), (2, ["ab", "cd", "e"]), (9, ["abcde"])]
)
async def test_text_is_streamed_in_pieces(size: int, pieces: list[str]) -> None:
    """As a real model does it; the turn comes last."""
    usage = estimate_usage(PROMPT, "abcde", "scripted")
    assert [*pieces, ModelTurn("abcde", "stop", usage)] == await collect(
        ScriptedModel(["abcde"], chunk_size=size), []
    )
    assert usage.estimated
    assert usage.prompt > 0


async def test_an_empty_text_has_no_pieces() -> None:
    """A delta is never empty."""
    (turn,) = await collect(ScriptedModel([""]), [])
    assert isinstance(turn, ModelTurn)


async def test_a_function_sees_the_prompt() -> None:
    """For scripts whose answers depend on the prompt."""
    model = ScriptedModel([lambda messages: f"You said: {messages[-1].content}"])
    assert "You said: What is 6 * 7?" == (await model.complete(PROMPT)).text


async def test_a_whole_turn_is_given_as_it_is() -> None:
    """For truncated answers, or usage that matters."""
    turn = ModelTurn("cut o", "length", TokenUsage(100, 50, 5))
    assert turn == await ScriptedModel([turn]).complete(PROMPT)


async def test_an_error_is_raised_in_its_turn() -> None:
    """The script continues after it."""
    model = ScriptedModel([ContextLengthError("too long"), "shorter"])
    with pytest.raises(ContextLengthError):
        await model.complete(PROMPT)
    assert "shorter" == (await model.complete(PROMPT)).text


async def test_an_interruption_comes_after_its_text() -> None:
    """Text that the error reports as delivered is delivered."""
    received: list[ModelChunk] = []
    with pytest.raises(ModelInterruptedError):
        await collect(ScriptedModel([ModelInterruptedError("lost", "half an answer")]), received)
    assert "half an answer" == "".join(str(chunk) for chunk in received)


async def test_the_end_of_the_script_is_named() -> None:
    """With its length and the prompt."""
    model = ScriptedModel(["one", "two"])
    for _ in range(2):
        await model.complete(PROMPT)
    with pytest.raises(ScriptExhaustedError, match=r"has 2 turns and turn 3 .* 6 \* 7"):
        await model.complete(PROMPT)


async def test_prompts_are_kept() -> None:
    """Tests of agents read a model's prompts."""
    model = ScriptedModel(["one"])
    await model.complete(PROMPT)
    assert (tuple(PROMPT),) == model.prompts
    assert "ScriptedModel(1 turns, 1 used)" == repr(model)


def test_a_bare_text_is_refused() -> None:
    """It would be a script of single letters."""
    with pytest.raises(UsageError, match="brackets"):
        ScriptedModel("hello")


def test_pieces_have_a_size() -> None:
    """Of at least one character."""
    with pytest.raises(UsageError):
        ScriptedModel([], chunk_size=0)
