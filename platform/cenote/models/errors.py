"""What can go wrong between an agent and a model, typed by what the caller may do about it.

A server's refusal is read from whatever body it sent. No text here ever holds a credential: it is cut out where the
text enters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NoReturn

from cenote_security.errors import CenoteError, NotTransferableError, UnavailableError, UsageError
from cenote_security.verdict import limit

MIN_REDACTED = 6
"""Shorter values are placeholders of servers without keys ("x", "EMPTY"); cutting them out garbles text."""

MASK = "***"

Redact = Callable[[str], str]
"""Cuts credentials out of a text that is going to be shown: servers echo what they were sent."""


class Credentials:
    """An API key and other secret arguments. No repr, error, log or recording shows them; no jail gets them.

    api_key: the plain key. extra: further arguments with their plain values, nested as the caller gave them.
    """

    __slots__ = ("api_key", "extra")

    def __init__(self, api_key: str | None = None, extra: Mapping[str, object] | None = None) -> None:
        self.api_key = clean_key(api_key) if api_key else None
        self.extra = MappingProxyType(dict(extra or {}))

    def redact(self, text: str) -> str:
        """`text` with every secret replaced by `***`."""
        for secret in sorted(_strings([self.api_key, self.extra]), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def __repr__(self) -> str:
        return f"Credentials({MASK})"

    def __reduce__(self) -> NoReturn:
        raise NotTransferableError("a model", "it holds credentials; give the jail a host function instead")


def clean_key(api_key: str) -> str:
    """The key without the line break that comes along from a file.

    Raises UsageError, without showing the key, for one that an HTTP header cannot carry.
    """
    key = api_key.strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError("the api_key has characters that no HTTP header can carry; was it copied in full?")
    return key


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= MIN_REDACTED:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


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


MAX_MESSAGE = 1_000
"""Characters of a server's message that an error shows; some send whole pages, or the prompt back."""

MAX_CODE = 100
"""Characters of its code that an error shows."""

_TEMPORARY = frozenset({408, 409, 425, 429})
_TEMPORARY_CODES = re.compile(
    r"server_error|internal_error|overloaded|unavailable|timeout|rate_limit|too_many_requests", re.IGNORECASE
)
_NO_MORE_CREDIT = re.compile(r"insufficient_quota|billing|insufficient_(credit|balance|funds)", re.IGNORECASE)
_TOO_LONG_CODES = re.compile(r"context_length_exceeded|exceed_context_size|context_window", re.IGNORECASE)
# How OpenAI and vLLM, Anthropic, llama.cpp, Gemini, TGI, Mistral and Cohere put it, in this order; then Moonshot,
# DashScope, and servers that answer in Chinese ("the request exceeds the maximum length").
_TOO_LONG = re.compile(
    r"maximum context length"
    r"|prompt is too long|context limit|context window"
    r"|available context size"
    r"|input token count.{0,40}exceeds"
    r"|inputs?`? tokens.{0,40}must be (<=|less)"
    r"|too large for model with \d+ maximum"
    r"|input is too long|too many tokens"
    r"|exceeded model token limit|range of input length"
    r"|超[过出].{0,8}(?:长度|上下文)|(?:长度|上下文).{0,8}超[过出]|超长",
    re.IGNORECASE | re.DOTALL,
)
_WEB_PAGE = re.compile(r"<(!doctype|html|head|body)\b", re.IGNORECASE)
_PAGE = "a web page came instead of an answer: check the base URL; many end in /v1"
_NOT_ABOUT_LENGTH = frozenset({401, 403, 404, 429})


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a server said instead of an answer.

    message, code: the server's own words, of any length, with credentials that it may echo.
    status: HTTP status, None for an error inside a stream.
    """

    message: str
    status: int | None = None
    code: str | None = None
    retry_after: float | None = None

    def error(self, redact: Redact) -> ModelError:
        """The error that tells the caller what to do, in words fit to be shown."""
        # Cut out before it is cut short: half a key is no longer found, and still half a key.
        message = bounded(redact(self.message)) or "the server gave no reason"
        code = redact(self.code)[:MAX_CODE] if self.code else None
        if self._too_long():
            return ContextLengthError(message, status=self.status, code=code)
        page = _PAGE if _WEB_PAGE.search(self.message) else ""
        if not self._temporary():
            refused = ModelRequestError(message, status=self.status, code=code)
            refused.advice = page
            return refused
        error = ModelUnavailableError(message, status=self.status, code=code)
        error.advice = page
        error.retry_after = self.retry_after
        return error

    def _too_long(self) -> bool:
        if self.status in _NOT_ABOUT_LENGTH:  # a limit on tokens per minute speaks of too many tokens, too
            return False
        return bool(_TOO_LONG_CODES.search(self.code or "") or _TOO_LONG.search(self.message))

    def _temporary(self) -> bool:
        if _NO_MORE_CREDIT.search(self.code or ""):  # comes as 429, but waiting does not pay the bill
            return False
        if self.status is None:
            return bool(_TEMPORARY_CODES.search(self.code or ""))
        return self.status in _TEMPORARY or self.status >= 500


def read_refusal(status: int, text: str, retry_after: float | None = None) -> Refusal:
    """The refusal in an HTTP error response: JSON of several shapes, a web page, text or nothing."""
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        payload = None
    if isinstance(payload, Mapping):
        code, message = _code_and_message(payload)
    else:
        code, message = None, text
    return Refusal(message=message, status=status, code=code, retry_after=retry_after)


def refusal_in_stream(error: object) -> Refusal:
    """The refusal in the `error` member of a chunk; a numeric code there is meant as an HTTP status."""
    code, message = _code_and_message({"error": error})
    status = int(code) if code and re.fullmatch(r"[45]\d\d", code) else None
    return Refusal(message=message, status=status, code=code)


def error_code(error: Mapping[str, object]) -> str | None:
    """Of `code` and `type` the one in words, which says more: `insufficient_quota` rather than 429."""
    words = [str(error[key]) for key in ("code", "type") if error.get(key)]
    return next((word for word in words if not word.isdigit()), words[0] if words else None)


def bounded(message: str) -> str:
    """`message` on one line, without the markup of a web page, cut where it gets too long for an error."""
    line = " ".join((_words(message) if _WEB_PAGE.search(message) else message).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…"


def _code_and_message(payload: Mapping[str, object]) -> tuple[str | None, str]:
    """From `{"error": {"message", "code"}}`, `{"error": "..."}`, `{"message": ...}` or `{"detail": ...}`."""
    error = payload.get("error") or payload
    if not isinstance(error, Mapping):
        return None, str(error)
    message = error.get("message") or error.get("detail") or json.dumps(error)
    return error_code(error), message if isinstance(message, str) else json.dumps(message)


def _words(page: str) -> str:
    # Both patterns take linear time: what is never closed ends with the page, or at the next tag.
    without_code = re.sub(r"<(script|style)\b.*?(</\1>|\Z)", " ", page, flags=re.IGNORECASE | re.DOTALL)
    return re.sub(r"<[^<>]*>", " ", without_code)
