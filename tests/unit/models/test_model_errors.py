"""Errors of models say what happened and what to do next, and survive pickling between processes."""

from __future__ import annotations

import pickle

import pytest

from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelInterruptedError,
    ModelRequestError,
    ModelUnavailableError,
    ReplayMismatchError,
    ScriptExhaustedError,
)
from cenote_security.errors import CenoteError, UnavailableError, UsageError


def test_families_follow_what_the_caller_can_do() -> None:
    """Waiting may fix unavailability, shortening a long prompt, the caller a wrong use."""
    assert issubclass(ModelError, CenoteError)
    assert issubclass(ModelUnavailableError, UnavailableError)
    assert issubclass(ModelInterruptedError, UnavailableError)
    assert issubclass(ContextLengthError, ModelRequestError)
    assert issubclass(ScriptExhaustedError, UsageError)
    assert issubclass(ReplayMismatchError, UsageError)


def test_text_names_facts_and_the_next_step() -> None:
    """The server's text first, then status and code, then advice."""
    text = str(ModelRequestError("no such model", status=404, code="model_not_found"))
    assert text.startswith("no such model (404 model_not_found); ")
    assert "check the model's name" in text


def test_a_code_that_repeats_the_status_is_shown_once() -> None:
    """Servers send `"code": 503` beside status 503."""
    assert "busy (503)" == str(ModelUnavailableError("busy", status=503, code="503"))


def test_unavailable_tells_how_often_and_how_long() -> None:
    """The handler of the error need not count."""
    error = ModelUnavailableError("busy")
    error.attempts, error.retry_after = 3, 90.0
    assert "busy; gave up after 3 attempts; the server asks to wait 90 s" == str(error)


@pytest.mark.parametrize(
    "error",
    [
        ModelRequestError("no", status=400, code="c"),
        ModelInterruptedError("lost", "partial text", status=500),
        ModelUnavailableError("busy", status=503),
    ],
)
def test_errors_survive_pickling(error: ModelError) -> None:
    """They cross process boundaries in trusted code with their facts."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(error), str(error), vars(error)) == (type(copy), str(copy), vars(copy))


@pytest.mark.parametrize(
    ("status", "code", "message", "step"),
    [
        (401, "invalid_api_key", "Incorrect API key provided", "check the key: `api_key=`"),
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            "check the key: `api_key=`",
        ),
        (401, None, "no", "check the key: `api_key=`"),
        (
            404,
            "model_not_found",
            "The model `m` does not exist or you do not have access to it",
            "model's name",
        ),
        (404, "NotFoundError", "The model `x` does not exist.", "model's name"),
        (404, None, 'model "x" not found, try pulling it first', "model's name"),
        (403, "model_not_found", "Project does not have access to model m", "model's name"),
        (429, "insufficient_quota", "You exceeded your current quota", "check its plan and billing"),
        (402, None, "Insufficient Balance", "check its plan and billing"),
        (400, None, "Your credit balance is too low to access the API", "check its plan and billing"),
        (403, None, "no", "the key does not allow this"),
        (404, None, "Not Found", "check the base URL"),
        (405, None, "Method Not Allowed", "check the base URL"),
        (302, None, "Moved", "check the base URL"),
        (400, None, "'max_tokens' is not supported with this model", "the request was not accepted"),
    ],
)
def test_a_refused_request_names_the_step_that_fits(
    status: int, code: str | None, message: str, step: str
) -> None:
    """The item to check: the key, the name, the bill, the address, or the request itself."""
    text = str(ModelRequestError(message, status=status, code=code))
    assert step in text
    assert 1 == text.count("check ")
    assert "\n" not in text


def test_a_limited_rate_names_what_helps() -> None:
    """Retries have ended by then."""
    assert "ask less at once" in str(ModelUnavailableError("slow down", status=429))
