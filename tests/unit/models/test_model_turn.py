"""The meaning of a server's finish reason for an answer."""

from __future__ import annotations

import pytest

from cenote.models import ModelTurn, ReplayModel, ScriptedModel
from cenote.models.messages import Message, TokenUsage, TurnEnd, ending_of


@pytest.mark.parametrize(
    ("reasons", "ending"),
    [
        ("stop STOP end_turn stop_sequence COMPLETE eos_token tool_calls function_call", TurnEnd.WHOLE),
        ("length max_tokens MAX_TOKENS model_length model_context_window_exceeded", TurnEnd.CUT),
        ("content_filter SAFETY safety RECITATION PROHIBITED_CONTENT guardrail_intervened", TurnEnd.FILTERED),
        ("refusal", TurnEnd.REFUSED),
        ("error abort network_error OTHER something_new", TurnEnd.UNKNOWN),
    ],
)
def test_what_a_reason_says(reasons: str, ending: TurnEnd) -> None:
    """In the terms of several providers; an unknown reason is not a good end."""
    assert {reason: ending for reason in reasons.split()} == {r: ending_of(r) for r in reasons.split()}


@pytest.mark.parametrize("reason", [None, ""])
def test_no_reason_is_no_good_end(reason: str | None) -> None:
    """The end of a stream is not the end of an answer."""
    assert TurnEnd.UNKNOWN is ending_of(reason)


async def test_a_scripted_or_replayed_refusal_is_no_text(tmp_path: object) -> None:
    """As with a server's: only the turn holds it."""
    turn = ModelTurn("```python\nx = 1\n```", "refusal", TokenUsage())
    path = f"{tmp_path}/recording.jsonl"
    prompt = [Message.user("x")]
    recorder = ReplayModel.record(path, ScriptedModel([turn]))
    assert [turn] == [chunk async for chunk in recorder.stream(prompt)]
    assert [turn] == [chunk async for chunk in ReplayModel(path).stream(prompt)]
