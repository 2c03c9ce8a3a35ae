"""LiteLLM itself: how it is loaded, what is read of its streams, and what its exceptions mean."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from cenote.models.completion import Completion
from cenote.models.errors import (
    ContextLengthError,
    ModelError,
    ModelRequestError,
    ModelResponseError,
    ModelUnavailableError,
    Redact,
    Refusal,
    bounded,
    error_code,
    missing_key,
    refusal_in_stream,
)
from cenote.models.retry import retry_after
from cenote_security.extras import importing

if TYPE_CHECKING:
    import httpx

_SECRET = re.compile("KEY|TOKEN|SECRET")

_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")


class LiteLLMChunk(Protocol):
    def model_dump(self) -> dict[str, object]: ...


class LiteLLMStream(Protocol):
    """What is used of LiteLLM's stream."""

    chunks: Sequence[object]  # as the provider sent them, before LiteLLM adds a usage of its own
    received_finish_reason: str | None  # None while LiteLLM only supposes one
    intermittent_finish_reason: str | None

    def __aiter__(self) -> AsyncGenerator[LiteLLMChunk, None]: ...
    async def __anext__(self) -> LiteLLMChunk: ...
    async def aclose(self) -> None: ...


def load() -> ModuleType:
    """LiteLLM, kept from the network and from standard output except for what a request needs.

    At import it would fetch a price map, at a request tokenizers and lists of headers; on an error it prints
    an advertisement. A user's explicit setting of the same variables stays in force.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    ours = "litellm" not in sys.modules
    with importing("LiteLLM", "models"):
        import litellm

    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    if ours and "LITELLM_LOG" not in os.environ:
        for name in _LOGGERS:  # a failure is raised; in a log it would come twice
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


def missing_keys(model_id: str, provider: str | None) -> list[str]:
    """The variables in which LiteLLM looks for the provider's key, when none of them is set."""
    library = load()
    name = f"{provider}/{model_id}" if provider and not model_id.startswith(f"{provider}/") else model_id
    kind = name.partition("/")[0]
    if library.api_key or getattr(library, f"{kind}_key", None):  # set by the program itself
        return []
    found = library.validate_environment(model=name)
    names = [] if found["keys_in_environment"] else [str(name) for name in found["missing_keys"]]
    return names if any(_SECRET.search(name) for name in names) else []  # an address alone is no key


def is_whole(stream: LiteLLMStream, failure: ModelError) -> bool:
    """Whether an answer is all there although LiteLLM has failed: the line was lost after its finish reason."""
    return isinstance(failure, ModelUnavailableError) and bool(_finish_reason(stream))


def keep_to_the_facts(stream: LiteLLMStream, completion: Completion) -> None:
    """Takes back what LiteLLM made up at the end of a stream: a finish reason, a usage of its own counting.

    Raises ModelUnavailableError for an answer that ended without a finish reason: its end may be missing;
    ModelResponseError when the server sent nothing that LiteLLM took for an answer.
    """
    if not any(getattr(chunk, "usage", None) for chunk in stream.chunks):
        completion.usage = None
    if (reason := _finish_reason(stream)) is None:
        completion.finish_reason = None
        if not completion.has_answer:
            raise ModelResponseError("the server sent no answer; is `api_base` right? Many end in /v1")
        raise ModelUnavailableError(
            "the stream ended before the answer did: the server gave no finish reason"
        )
    completion.finish_reason = reason  # LiteLLM makes `stop` of what it does not know, and of `error`


def _finish_reason(stream: LiteLLMStream) -> str | None:
    """As the server gave it."""
    return stream.received_finish_reason or stream.intermittent_finish_reason or None


_PREFIX = re.compile(r"^((litellm\.)?\w*(Error|Exception|Timeout): |\w*Exception - )+")
_NO_PROVIDER = re.compile(r"(?>.*?LLM Provider NOT provided).*?You passed model=(\S+)", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_NO_REASON = re.compile(r"Error code: \d+")
_OBJECT = re.compile(r" ssl:(<[^<>]*>|\w+)")
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


def timeout_of(error: Exception) -> httpx.TimeoutException | None:
    """The timeout that led to an exception out of LiteLLM, which itself names no option."""
    import httpx

    return next((one for one in _causes(error) if isinstance(one, httpx.TimeoutException)), None)


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
    if unknown := _NO_PROVIDER.match(text):
        return f"no provider is known for the model {unknown[1]}"
    said, traceback, _ = text.partition(_TRACEBACK)
    text = _OBJECT.sub("", said.rstrip() if traceback else text)
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
