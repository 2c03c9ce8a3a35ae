"""Chunks of a chat completion, in the variants of real servers, add up to an answer."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models.completion import MAX_ANSWER, MAX_TOKENS, Completion, read_usage, wire_messages
from cenote.models.errors import ModelError, ModelResponseError, ModelUnavailableError
from cenote.models.messages import Message, TokenUsage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "message", "content", "usage", "error", "text", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def completion() -> Completion:
    return Completion(lambda text: text)


def said(content: object, reason: str | None = None, **members: object) -> dict[str, object]:
    choice = {"index": 0, "delta": {"content": content, **members}, "finish_reason": reason}
    return {"choices": [choice]}


def test_deltas_add_up() -> None:
    """Text, finish reason and usage come in separate chunks."""
    answer = completion()
    chunks = [said(""), said("Hel"), said("lo"), said(None, "stop")]
    chunks.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    assert ["", "Hel", "lo", "", ""] == [answer.absorb(chunk) for chunk in chunks]
    assert ("Hello", "stop", TokenUsage(3, 0, 2)) == (answer.text, answer.finish_reason, answer.usage)


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        ({"choices": None}, ""),
        ({}, ""),
        ({"choices": [{"delta": None}]}, ""),
        ({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}, "whole"),
        (said([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]), "a"),
        (said([{"type": "text", "text": None}, "b", 3]), ""),
        (said(None, reasoning_content="let me think"), ""),
        (said(None, refusal="I cannot"), ""),
        (said("", refusal=""), ""),
        (said(None, tool_calls=[{"id": "1"}]), ""),
    ],
)
def test_variants_of_real_servers_are_understood(chunk: object, text: str) -> None:
    """Empty members, lists of parts, whole messages; reasoning and tool calls are not part of the text."""
    assert text == completion().absorb(chunk)


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        3,
        "x",
        [1],
        {"choices": 3},
        {"choices": [3]},
        {"choices": [{"delta": 3}]},
        said(3),
        said({"a": 1}),
    ],
)
def test_wrong_shapes_are_named(chunk: object) -> None:
    """The error shows the received value."""
    with pytest.raises(ModelResponseError, match="wrong shape"):
        completion().absorb(chunk)


@pytest.mark.parametrize("data", ["{oops", "", "[" * 100_000, "\ufffd"])
def test_what_is_not_json_is_named(data: str) -> None:
    """Also where the nesting, not the syntax, breaks a decoder."""
    with pytest.raises(ModelResponseError, match="not JSON"):
        completion().absorb_json(data)


def test_an_error_in_the_stream_is_raised() -> None:
    """With its meaning for the caller, and without secrets."""
    answer = Completion(lambda text: text.replace("sk-1", "***"))
    with pytest.raises(ModelUnavailableError, match=r"\*\*\* is busy"):
        answer.absorb({"error": {"message": "sk-1 is busy", "code": 503}})


def test_malformed_chunks_show_no_secret() -> None:
    """A server may echo the request in anything it sends."""
    answer = Completion(lambda text: text.replace("sk-1", "***"))
    for data in ("sk-1 {", '{"choices": "sk-1"', '{"choices": ["sk-1"]}'):
        with pytest.raises(ModelResponseError) as caught:
            answer.absorb_json(data)
        assert "sk-1" not in str(caught.value)


def test_an_endless_answer_ends() -> None:
    """At the limit, not one character later."""
    answer = completion()
    answer.absorb(said("x" * MAX_ANSWER))
    with pytest.raises(ModelResponseError, match="longer than"):
        answer.absorb(said("x"))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, TokenUsage(5, 0, 2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            TokenUsage(5, 4, 2),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}},
            TokenUsage(5, 5, 2),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}},
            TokenUsage(5, 0, 2),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}, TokenUsage(5, 3, 2)),
        ({"prompt_tokens": MAX_TOKENS, "completion_tokens": 0}, TokenUsage(MAX_TOKENS, 0, 0)),
        ({"prompt_tokens": MAX_TOKENS + 1, "completion_tokens": 0}, None),
        ({"prompt_tokens": -1, "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": "5", "completion_tokens": 2}, None),
        ({"prompt_tokens": 5}, None),
        ({}, None),
        (None, None),
        ([5, 2], None),
    ],
)
def test_usage_is_believed_when_it_makes_sense(usage: object, expected: TokenUsage | None) -> None:
    """Implausible usage is treated as absent, and tokens will be counted."""
    assert expected == read_usage(usage)


def test_a_later_chunk_without_usage_takes_nothing_back() -> None:
    """Some servers report in the middle, some in each chunk: the last report counts."""
    answer = completion()
    for count in (1, 2):
        answer.absorb({"usage": {"prompt_tokens": 5, "completion_tokens": count}})
    answer.absorb({"usage": None})
    assert TokenUsage(5, 0, 2) == answer.usage


def test_lone_surrogates_become_question_marks() -> None:
    """Program output that was not UTF-8 contains them, and no request can."""
    assert [{"role": "user", "content": "a?ü"}] == wire_messages([Message.user("a\udcffü")])


@pytest.mark.slow
@given(JSON)
@settings(deadline=None, max_examples=200)
def test_any_json_is_text_or_a_model_error(chunk: object) -> None:
    """No other exception is raised, for any JSON from a server."""
    with contextlib.suppress(ModelError):
        assert isinstance(completion().absorb_json(json.dumps(chunk)), str)
