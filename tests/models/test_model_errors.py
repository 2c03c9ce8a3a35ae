"""Errors of models say what happened and what to do next, and survive the way between processes."""

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
    """Waiting may mend what is unavailable, shortening what is too long, the caller what it used wrongly."""
    assert issubclass(ModelError, CenoteError)
    assert issubclass(ModelUnavailableError, UnavailableError)
    assert issubclass(ModelInterruptedError, UnavailableError)
    assert issubclass(ContextLengthError, ModelRequestError)
    assert issubclass(ScriptExhaustedError, UsageError)
    assert issubclass(ReplayMismatchError, UsageError)


def test_text_names_facts_and_the_next_step() -> None:
    """The server's words first, then status and code, then advice."""
    text = str(ModelRequestError("no such model", status=404, code="model_not_found"))
    assert text.startswith("no such model (404 model_not_found); ")
    assert "check the model's name" in text


def test_a_code_that_repeats_the_status_is_shown_once() -> None:
    """Servers send `"code": 503` beside status 503."""
    assert "busy (503)" == str(ModelUnavailableError("busy", status=503, code="503"))


def test_unavailable_tells_how_often_and_how_long() -> None:
    """Whoever handles it need not count."""
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
