"""A server's refusal, read from whatever body it sent, and the error it amounts to. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cenote.models.credentials import Redact
from cenote.models.errors import ContextLengthError, ModelError, ModelRequestError, ModelUnavailableError

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
# How OpenAI and vLLM, Anthropic, llama.cpp, Gemini, TGI, Mistral and Cohere put it, in this order.
_TOO_LONG = re.compile(
    r"maximum context length"
    r"|prompt is too long|context limit|context window"
    r"|available context size"
    r"|input token count.{0,40}exceeds"
    r"|inputs?`? tokens.{0,40}must be (<=|less)"
    r"|too large for model with \d+ maximum"
    r"|input is too long|too many tokens",
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
