"""LiteLLM's exceptions, some with several meanings, become errors that the caller can act on."""

from __future__ import annotations

import json

import httpx
import pytest

from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelResponseError,
    ModelUnavailableError,
)
from cenote.models.litellm_library import load, model_error

KEY = "sk-very-secret-0123456789"


def raised(name: str, message: str = "vague") -> Exception:
    """An exception of LiteLLM's, which takes seconds to import, so it is not imported during collection."""
    error: Exception = getattr(load().exceptions, name)(message, llm_provider="openai", model="m")
    return error


def mapped(error: Exception, cause: Exception | None = None) -> ModelError:
    error.__cause__ = cause
    return model_error(error, lambda text: text.replace(KEY, "***"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BadRequestError", ModelRequestError),
        ("AuthenticationError", ModelRequestError),
        ("NotFoundError", ModelRequestError),
        ("UnsupportedParamsError", ModelRequestError),
        ("ContextWindowExceededError", ContextLengthError),
        ("RateLimitError", ModelUnavailableError),
        ("Timeout", ModelUnavailableError),
        ("ServiceUnavailableError", ModelUnavailableError),
        ("InternalServerError", ModelUnavailableError),
    ],
)
def test_exceptions_of_one_meaning(name: str, kind: type[ModelError]) -> None:
    """Errors that waiting may fix, that shortening may fix, and others."""
    assert kind is type(mapped(raised(name)))


def test_what_an_adapter_lets_through_is_a_refusal() -> None:
    """It failed before anything was sent, and will fail again."""
    assert ModelRequestError is type(mapped(ValueError("no region")))


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ConnectionResetError("reset"), ModelUnavailableError),
        (httpx.ReadTimeout("slow"), ModelUnavailableError),
        (json.JSONDecodeError("bad", "{", 0), ModelResponseError),
        (AttributeError("'list' has no attribute 'choices'"), ModelResponseError),
    ],
)
def test_a_vague_exception_means_what_caused_it(cause: Exception, kind: type[ModelError]) -> None:
    """LiteLLM calls all of these a connection error with status 500."""
    assert kind is type(mapped(raised("APIConnectionError"), cause))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", ModelUnavailableError),
        (503, ModelUnavailableError),
        ("context_length_exceeded", ContextLengthError),
        ("invalid_prompt", ModelRequestError),
    ],
)
def test_an_error_event_means_what_its_code_says(code: str | int, kind: type[ModelError]) -> None:
    """Only the OpenAI package's exception, deep in the chain, has it."""
    import openai

    event = openai.APIError("an event", httpx.Request("POST", "http://localhost"), body={"code": code})
    assert kind is type(mapped(raised("APIConnectionError"), event))


def test_a_lost_connection_is_one_whatever_else_went_wrong() -> None:
    """A chain may hold both; the network error came first."""
    lost = ConnectionResetError("reset")
    lost.__context__ = KeyError("no such header")
    assert ModelUnavailableError is type(mapped(raised("APIConnectionError"), lost))


def test_chains_that_bite_their_tail_end() -> None:
    """Exceptions that are raised repeatedly can form a circle."""
    error, cause = raised("APIConnectionError"), RuntimeError("x")
    cause.__cause__ = error
    assert ModelUnavailableError is type(mapped(error, cause))


def test_names_of_libraries_are_cut_off() -> None:
    """The server's text remains."""
    error = raised("BadRequestError", "litellm.BadRequestError: OpenAIException - no, because")
    assert "no, because" == mapped(error).message


@pytest.mark.parametrize("cause", [None, ConnectionResetError(KEY), ValueError(KEY)])
@pytest.mark.parametrize("name", ["APIConnectionError", "ContextWindowExceededError", "BadRequestError"])
def test_no_meaning_shows_a_secret(name: str, cause: Exception | None) -> None:
    """Each path removes it."""
    shown = mapped(raised(name, f"about {KEY}"), cause)
    assert "***" in str(shown)
    assert KEY not in f"{shown} {vars(shown)}"


def test_an_error_of_ours_passes() -> None:
    """It was raised while LiteLLM's stream was read."""
    error = ModelResponseError("what?")
    assert error is mapped(error)


def test_a_missing_key_is_final() -> None:
    """The OpenAI package refuses to send a request without a key; LiteLLM reports that as a server's error 500."""
    import openai

    missing = openai.OpenAIError("Missing credentials. Please pass an `api_key`")
    error = mapped(raised("InternalServerError"), missing)
    assert ModelRequestError is type(error)
    server = openai.APIConnectionError(request=httpx.Request("POST", "http://localhost"))
    assert ModelRequestError is not type(mapped(raised("InternalServerError"), server))


def test_a_missing_key_is_final_whatever_its_caller_was_handling() -> None:
    """The caller's context, such as the handler of another error, is in the chain behind it."""
    import openai

    missing = openai.OpenAIError("Missing credentials. Please pass an `api_key`")
    missing.__context__ = RuntimeError("no running event loop")
    assert ModelRequestError is type(mapped(raised("InternalServerError"), missing))
