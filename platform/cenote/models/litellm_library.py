"""LiteLLM itself: how it is loaded, and what is read of its streams."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from types import ModuleType
from typing import Protocol

from cenote.models.completion import Completion
from cenote.models.errors import ModelError, ModelResponseError, ModelUnavailableError
from cenote_security.extras import importing

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
