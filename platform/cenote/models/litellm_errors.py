"""What LiteLLM's exceptions mean."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from cenote.models.credentials import Redact
from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelResponseError,
    ModelUnavailableError,
    missing_key,
)
from cenote.models.litellm_library import load, missing_keys
from cenote.models.refusal import Refusal, bounded, error_code, refusal_in_stream
from cenote.models.retry import retry_after

_PREFIX = re.compile(r"^((litellm\.)?\w*(Error|Exception|Timeout): |\w*Exception - )+")
_NO_PROVIDER = re.compile(r"LLM Provider NOT provided.*?You passed model=(\S+)", re.DOTALL)
_TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\).*", re.DOTALL)
_NO_REASON = re.compile(r"Error code: \d+")
_OBJECT = re.compile(r" ssl:(<[^>]*>|\w+)")
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError)


def model_error(error: Exception, redact: Redact) -> ModelError:
    """What an exception out of LiteLLM, or out of a provider's adapter in it, means to the caller."""
    import httpx

    litellm = load()

    if isinstance(error, ModelError):
        return error
    causes = list(_causes(error))
    message = _message(causes)
    shown = bounded(redact(message))
    if isinstance(error, litellm.exceptions.ContextWindowExceededError):
        return ContextLengthError(shown, status=error.status_code)
    if not isinstance(error, _vague_errors()):
        return _refusal(causes, message).error(redact)
    if _is_misconfigured(causes):
        return ModelRequestError(shown)
    # These three stand for a lost connection, an error event, a malformed chunk and a real status 500 alike.
    if any(isinstance(cause, OSError | httpx.RequestError) for cause in causes):
        return ModelUnavailableError(shown)
    if any(isinstance(cause, _MALFORMED) for cause in causes):
        return ModelResponseError(f"the server's answer cannot be read: {shown}")
    code = _event_code(causes)
    refusal = refusal_in_stream({"message": message, "code": code}) if code else _refusal(causes, message)
    return refusal.error(redact)


def without_key(failure: ModelError, model_id: str, provider: str | None, *, elsewhere: bool) -> ModelError:
    """What a request that was sent without a key has failed of: of that, if its provider wants one.

    elsewhere: the request went to a server that the caller named, which may be one that wants no key.
    """
    unsent = isinstance(failure, ModelUnavailableError) and failure.status is None
    if (elsewhere and unsent) or failure.status not in (None, 401, 403, 500):
        return failure
    if not (names := missing_keys(model_id, provider)):
        return failure
    # LiteLLM lists what belongs together, such as a pair of AWS, and variables of which one is enough.
    one_will_do = all(name.endswith("_API_KEY") for name in names)
    listed = (" or " if one_will_do else " and ").join(names)
    return missing_key(model_id, f"set {listed} in the environment, or give `api_key=`")


def _is_misconfigured(causes: Sequence[BaseException]) -> bool:
    """Whether the OpenAI package refused to begin: no key, say. What a server said is an APIError."""
    import openai

    # Not only the root: what the caller was handling when it called is part of the chain too.
    return any(isinstance(one, openai.OpenAIError) and not isinstance(one, openai.APIError) for one in causes)


def _vague_errors() -> tuple[type[Exception], ...]:
    exceptions = load().exceptions

    return exceptions.MidStreamFallbackError, exceptions.APIConnectionError, exceptions.InternalServerError


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that led to `error`, itself excluded where it only wraps another one, root last."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        inner = getattr(following, "original_exception", None) or following.__cause__ or following.__context__
        if not hasattr(following, "original_exception") or inner is None:
            yield following
        following = inner


def _message(causes: Sequence[BaseException]) -> str:
    """The server's own words, without the names that LiteLLM puts before them."""
    text = str(getattr(causes[0], "message", "") or causes[0])
    if unknown := _NO_PROVIDER.search(text):
        return f"no provider is known for the model {unknown[1]}"
    text = _OBJECT.sub("", _TRACEBACK.sub("", text))
    text = _PREFIX.sub("", text) or type(causes[0]).__name__
    return "" if _NO_REASON.fullmatch(text) else text


def _refusal(causes: Sequence[BaseException], message: str) -> Refusal:
    headers = getattr(causes[0], "litellm_response_headers", None)
    status = getattr(causes[0], "status_code", None)
    bodies = (getattr(cause, "body", None) for cause in causes)  # not each version of LiteLLM passes it on
    codes = (error_code(body) for body in bodies if isinstance(body, Mapping))
    return Refusal(
        message=message,
        status=status if isinstance(status, int) else None,
        code=next(filter(None, codes), None),
        retry_after=retry_after(headers, time.time()) if isinstance(headers, Mapping) else None,
    )


def _event_code(causes: Sequence[BaseException]) -> str | None:
    """The code of an error event inside a stream: only the OpenAI package's exception still holds it."""
    import openai

    codes = [cause.code for cause in causes if isinstance(cause, openai.APIError) and cause.code]
    return str(codes[-1]) if codes else None
