"""What can go wrong between an agent and a model, typed by what the caller may do about it.

No text here ever holds a credential: it is cut out where the text enters.
"""

from __future__ import annotations

import re
from typing import Final

from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_security.verdict import limit

_FLAGS = re.IGNORECASE | re.DOTALL
_CREDIT = re.compile(
    r"insufficient[ _](quota|credits?|balance|funds)|billing|credit balance|current quota|out of credits?"
    r"|payment required|spending limit",
    _FLAGS,
)
_MODEL = re.compile(
    r"model_not_found|unknown model|no such model|invalid model|no provider is known"
    r"|\bmodels?\b.{0,200}?(does not exist|not found|is not available|not a valid model|access to)"
    r"|access to.{0,40}\bmodel\b",
    _FLAGS,
)
_KEY = re.compile(r"api[ _-]?key|authenticat|credentials|unauthorized|invalid.{0,20}token", _FLAGS)
_ABOUT_CREDIT: Final = "the account at the provider has no quota or credit left: check its plan and billing"
_ABOUT_MODEL: Final = (
    "check the model's name; with LiteLLM it is provider/model, such as openai/gpt-5, or openai/NAME for a "
    "server of your own"
)
_ABOUT_KEY: Final = (
    "check the key: `api_key=`, or the environment variable of the provider, such as OPENAI_API_KEY"
)
_ABOUT_RIGHTS: Final = "the key does not allow this: check what it is for, and the base URL"
_ABOUT_URL: Final = "check the base URL; many end in /v1"
_ABOUT_RATE: Final = "the provider limits the rate: wait, ask less at once, or have the limit raised there"


def about_credit(text: str) -> bool:
    """Whether a provider says that the account has no credit left."""
    return _CREDIT.search(text) is not None


class ModelError(CenoteError):
    """A model call failed.

    message: what happened, in the server's words where it said any; bounded.
    status: HTTP status, None when there was no HTTP answer.
    code: the server's own word for it, such as `insufficient_quota`.
    """

    advice = ""

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code

    def __str__(self) -> str:
        facts = " ".join(dict.fromkeys(str(fact) for fact in (self.status, self.code) if fact))
        text = f"{self.message} ({facts})" if facts else self.message
        advice = self._next_step()
        return f"{text}; {advice}" if advice else text

    def _next_step(self) -> str:
        return self.advice


class ModelRequestError(ModelError):
    """The server refused the request; sending it again is no use."""

    def _next_step(self) -> str:
        if self.advice:
            return self.advice
        text = f"{self.code} {self.message}"
        if self.status == 402 or _CREDIT.search(text):
            return _ABOUT_CREDIT
        if _MODEL.search(text):
            return _ABOUT_MODEL
        if self.status == 401 or _KEY.search(text):
            return _ABOUT_KEY
        if self.status == 403:
            return _ABOUT_RIGHTS
        if self.status is not None and (self.status in (404, 405) or 300 <= self.status < 400):
            return _ABOUT_URL
        return (
            "the request was not accepted: check the model's name, the key, the base URL and the parameters"
        )


def missing_key(model_id: str, instead: str) -> ModelRequestError:
    """The error of a request that has no key. instead: what to set or give."""
    error = ModelRequestError(f"no key for the model {model_id}")
    error.advice = instead
    return error


class ContextLengthError(ModelRequestError):
    """The messages are longer than the model's context."""

    verdict = limit("context")

    advice = "the conversation is longer than the model's context: shorten or compact it"


class ModelUnavailableError(ModelError, UnavailableError):
    """No answer now; the same request may succeed later.

    retry_after: seconds that the server asked to wait, None when it named none.
    attempts: how often it was tried before giving up.
    """

    retry_after: float | None = None
    attempts: int = 1

    def __str__(self) -> str:
        text = super().__str__()
        if self.attempts > 1:
            text = f"{text}; gave up after {self.attempts} attempts"
        if self.retry_after is not None:
            text = f"{text}; the server asks to wait {self.retry_after:g} s"
        return text

    def _next_step(self) -> str:
        return self.advice or (_ABOUT_RATE if self.status == 429 else "")


class ModelInterruptedError(ModelError, UnavailableError):
    """The answer broke off after some of its text had been delivered. Asking again starts a new answer.

    partial: the text that was delivered.
    """

    def __init__(
        self, message: str, partial: str = "", *, status: int | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.args = (message, partial)
        self.partial = partial

    def __str__(self) -> str:
        return f"the answer broke off after {len(self.partial)} characters: {super().__str__()}"


class ModelResponseError(ModelError):
    """The server's answer is not one: no JSON where there must be, the wrong shape, or beyond every limit."""


class ScriptExhaustedError(ModelError, UsageError):
    """A scripted or replayed model was asked for more turns than it has."""


class ReplayMismatchError(ModelError, UsageError):
    """A replayed model was asked something that the recording does not hold."""
