"""What can go wrong between an agent and a model, typed by what the caller may do about it.

No text here ever holds a credential: it is cut out where the text enters.
"""

from __future__ import annotations

from cenote_security.errors import CenoteError, UnavailableError, UsageError


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
        return f"{text}; {self.advice}" if self.advice else text


class ModelRequestError(ModelError):
    """The server refused the request; sending it again is no use."""

    advice = "the request was not accepted: check the model's name, the key, the base URL and the parameters"


class ContextLengthError(ModelRequestError):
    """The messages are longer than the model's context."""

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
