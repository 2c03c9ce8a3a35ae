"""Errors of models, in the CaveAgent library's terms. Each is one of Cenote's, too."""

from __future__ import annotations

import time
from typing import Final, NoReturn

from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    about_credit,
)
from cenote.models.refusal import Refusal
from cenote.models.retry import retry_after

RETRYABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


class PromptTooLongError(ContextLengthError):
    """The conversation is longer than the model's window; the agent makes it shorter and asks again."""


class ProviderBillingError(ModelRequestError):
    """The account at the provider has no credit left."""


class ProviderError(ModelError):
    """Any other failure of a provider."""


class StreamStalledError(ModelUnavailableError, TimeoutError):
    """No piece of an answer came within `stream_idle_timeout`."""


def is_context_length_exceeded(error: Exception) -> bool:
    if isinstance(error, ContextLengthError) or _status_of(error) == 413:
        return True
    return isinstance(_refusal(error).error(str), ContextLengthError)


def is_billing_exhausted(error: Exception) -> bool:
    code = str(getattr(error, "code", "") or "")
    return _status_of(error) == 402 or code == "402" or about_credit(f"{code} {error}")


def classify_provider_error(error: Exception) -> ModelError:
    """What a provider's client has raised, as one of these errors."""
    if isinstance(error, PromptTooLongError | ProviderBillingError | ProviderError | StreamStalledError):
        return error
    known = error if isinstance(error, ModelError) else None
    message = known.message if known is not None else str(error)
    if is_context_length_exceeded(error):
        return PromptTooLongError(message)
    if is_billing_exhausted(error):
        return ProviderBillingError(message)
    if known is not None:
        return ProviderError(known.message, status=known.status, code=known.code)
    return ProviderError(f"{type(error).__name__}: {error}")


def raise_model_error(error: Exception) -> NoReturn:
    typed = classify_provider_error(error)
    if typed is error:
        raise error
    raise typed from error


def unavailable(error: Exception) -> ModelUnavailableError | None:
    """The failure, where asking again may mend it."""
    if is_billing_exhausted(error):
        return None
    status = _status_of(error)
    if status is not None:
        temporary = status in RETRYABLE_STATUS
    else:
        name = type(error).__name__.lower()
        temporary = (
            isinstance(error, ConnectionError | TimeoutError | ModelUnavailableError)
            or "timeout" in name
            or "connection" in name
        )
    if not temporary:
        return None
    failure = ModelUnavailableError(str(error), status=status)
    response = getattr(error, "response", None)
    headers = getattr(error, "headers", None) or getattr(response, "headers", None) or {}
    failure.retry_after = retry_after({str(k).lower(): v for k, v in dict(headers).items()}, time.time())
    return failure


def _refusal(error: Exception) -> Refusal:
    code = getattr(error, "code", None)
    status = _status_of(error)
    return Refusal(
        message=str(error), status=None if status == 413 else status, code=str(code) if code else None
    )


def _status_of(error: Exception) -> int | None:
    for name in ("status_code", "status"):
        if isinstance(status := getattr(error, name, None), int):
            return status
    return None
