"""Servers' refusals, and their meaning for the caller."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models.errors import (
    MAX_CODE,
    MAX_MESSAGE,
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    Refusal,
    bounded,
    read_refusal,
    refusal_in_stream,
)


def error(refusal: Refusal) -> ModelError:
    return refusal.error(lambda text: text)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRequestError),
        (401, ModelRequestError),
        (403, ModelRequestError),
        (404, ModelRequestError),
        (422, ModelRequestError),
        (301, ModelRequestError),
        (408, ModelUnavailableError),
        (409, ModelUnavailableError),
        (429, ModelUnavailableError),
        (500, ModelUnavailableError),
        (503, ModelUnavailableError),
        (529, ModelUnavailableError),
    ],
)
def test_status_decides_whether_waiting_may_help(status: int, kind: type[ModelError]) -> None:
    """Timeouts, conflicts, rate limits and a server's own failures are temporary; the rest is not."""
    assert kind is type(error(read_refusal(status, "{}")))


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
        "prompt is too long: 205000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "the request exceeds the available context size. try increasing the context size",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "Your input exceeds the context window of this model.",
        "Input is too long for requested model.",
        "Invalid request: Your request exceeded model token limit: 131072",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
        "请求超过最大长度限制",
        "输入的上下文长度超出模型限制",
    ],
)
def test_too_long_a_conversation_is_recognised(message: str) -> None:
    """Each server words it differently; the agent reacts in the same way."""
    body = json.dumps({"error": {"message": message}})
    assert ContextLengthError is type(error(read_refusal(400, body)))


def test_context_length_is_recognised_by_its_code() -> None:
    """For any words, in any language."""
    body = json.dumps({"error": {"message": "zu lang", "code": "context_length_exceeded"}})
    assert ContextLengthError is type(error(read_refusal(400, body)))


def test_a_limit_on_tokens_per_minute_is_not_about_length() -> None:
    """It is temporary; compacting the conversation would lose it for nothing."""
    body = json.dumps({"error": {"message": "Too many tokens per minute", "code": "rate_limit_exceeded"}})
    assert ModelUnavailableError is type(error(read_refusal(429, body)))


def test_a_spent_quota_does_not_pass() -> None:
    """It has the status of a rate limit, but waiting does not help."""
    body = json.dumps({"error": {"message": "quota", "code": "insufficient_quota", "type": "x"}})
    assert ModelRequestError is type(error(read_refusal(429, body)))


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ('{"error": {"message": "m", "type": "t", "code": null}}', "m", "t"),
        ('{"error": {"message": "m", "type": "t", "code": "c"}}', "m", "c"),
        ('{"error": {"message": "m", "type": "t", "code": 400}}', "m", "t"),
        ('{"error": "m"}', "m", None),
        ('{"message": "m", "code": 7}', "m", "7"),
        ('{"detail": "m"}', "m", None),
        ('{"detail": [{"loc": ["body"]}]}', '[{"loc": ["body"]}]', None),
        ('{"error": {"oops": 1}}', '{"oops": 1}', None),
        ("[1, 2]", "[1, 2]", None),
        ("out of order", "out of order", None),
        ("", "the server gave no reason", None),
        ("<html><style>a{}</style><h1>Bad  gateway</h1></html>", "Bad gateway", None),
        ("[" * 100_000, "[" * MAX_MESSAGE + "…", None),
    ],
)
def test_bodies_of_all_shapes_are_read(body: str, message: str, code: str | None) -> None:
    """The server's message is shown from any place in the body; a page is shown without its markup."""
    shown = error(read_refusal(500, body))
    assert (message, code) == (shown.message, shown.code)


def test_retry_after_reaches_the_error() -> None:
    """The header's value is where the retry policy looks for it."""
    refused = error(read_refusal(429, "{}", 5.0))
    assert isinstance(refused, ModelUnavailableError)
    assert 5.0 == refused.retry_after


@pytest.mark.parametrize(
    ("member", "kind", "status"),
    [
        ({"message": "m", "code": 503}, ModelUnavailableError, 503),
        ({"message": "m", "code": "429"}, ModelUnavailableError, 429),
        ({"message": "m", "type": "server_error"}, ModelUnavailableError, None),
        ({"message": "m", "type": "overloaded_error"}, ModelUnavailableError, None),
        ({"message": "m", "code": 400}, ModelRequestError, 400),
        ({"message": "m", "code": "99999"}, ModelRequestError, None),
        ("something", ModelRequestError, None),
        ({"message": "prompt is too long"}, ContextLengthError, None),
    ],
)
def test_errors_inside_a_stream(member: object, kind: type[ModelError], status: int | None) -> None:
    """There is no status any more: the code replaces it, as a number or a word."""
    refused = error(refusal_in_stream(member))
    assert (kind, status) == (type(refused), refused.status)


def test_a_key_at_the_cut_is_gone_as_a_whole() -> None:
    """Truncating before removing the key would leave half of it."""
    key = "sk-very-secret-0123456789"
    for start in range(MAX_MESSAGE - len(key), MAX_MESSAGE + 1):
        refusal = Refusal(message="x" * start + key, code="y" * (MAX_CODE - 5) + key)
        refused = refusal.error(lambda text: text.replace(key, ""))
        assert "sk-" not in str(refused)


@pytest.mark.slow
@given(
    st.integers(300, 599),
    st.text(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps),
)
@settings(deadline=None, max_examples=100)
def test_every_body_gives_an_error_of_bounded_length(status: int, body: str) -> None:
    """A refusal is never another kind of exception, nor unbounded."""
    refused = error(read_refusal(status, body))
    assert refused.message
    assert len(str(refused)) < MAX_MESSAGE + MAX_CODE + 300


@pytest.mark.parametrize("piece", ["<script", "<", "<style>", "litellm.Error", "Exception - "])
def test_a_hostile_page_costs_little_time(piece: str) -> None:
    """A hundred thousand unclosed tags are read once."""
    page, started = f"<html>{piece * 100_000}", time.process_time()
    assert len(bounded(page)) <= MAX_MESSAGE + 1
    assert 5 > time.process_time() - started


def test_bounded_is_one_line() -> None:
    """Errors are shown in logs and tables."""
    assert "a b c" == bounded("a\n  b\t\nc")
