"""What a chat completion has said so far, from its decoded chunks. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cenote.models.credentials import Redact
from cenote.models.errors import ModelResponseError
from cenote.models.messages import Message
from cenote.models.refusal import bounded, refusal_in_stream
from cenote.models.usage import TokenUsage

MAX_ANSWER = 8 * 2**20
"""Characters. No model writes a hundredth of it; a broken server's endless answer ends here."""

MAX_TOKENS = 2**40
"""A server that reports more tokens than this for one call is not believed."""

MAX_SHOWN = 200
"""Characters of a malformed chunk that an error shows."""


class Completion:
    """Takes chunks of the OpenAI chat completions format, streamed (`delta`) or whole (`message`)."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact  # for what errors show of the server's words
        self._parts: list[str] = []
        self._length = 0
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None  # as reported; None until a chunk brings it

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def absorb_json(self, data: str) -> str:
        """As `absorb`, for a chunk that is still JSON."""
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise ModelResponseError(
                f"the server sent a chunk that is not JSON: {self._show(data)}"
            ) from None
        return self.absorb(chunk)

    def absorb(self, chunk: object) -> str:
        """The text that `chunk` adds, often none.

        Raises ModelResponseError for a chunk of the wrong shape, and the fitting ModelError for one that
        carries an error.
        """
        if not isinstance(chunk, Mapping):
            raise self._wrong("a chunk", chunk)
        if chunk.get("error"):
            raise refusal_in_stream(chunk["error"]).error(self._redact)
        self.usage = read_usage(chunk.get("usage")) or self.usage
        choices = chunk.get("choices") or []
        if not isinstance(choices, Sequence):
            raise self._wrong("choices", choices)
        return self._choice(choices[0]) if choices else ""

    def _choice(self, choice: object) -> str:
        if not isinstance(choice, Mapping):
            raise self._wrong("a choice", choice)
        reason = choice.get("finish_reason")
        self.finish_reason = str(reason)[:100] if reason else self.finish_reason
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise self._wrong("a delta", delta)
        # Reasoning comes in members of its own (`reasoning_content`, `reasoning`); the answer is without it. A model
        # that declines says why in `refusal`, instead of content: that is its answer.
        return self._keep(self._content(delta.get("content")) or self._content(delta.get("refusal")))

    def _content(self, content: object) -> str:
        """Text of a content member: a string, null, or a list of typed parts of which only text counts."""
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, Sequence):
            raise self._wrong("content", content)
        return "".join(_part(part) for part in content)

    def _keep(self, text: str) -> str:
        if text:
            self._length += len(text)
            if self._length > MAX_ANSWER:
                raise ModelResponseError(f"the answer is longer than {MAX_ANSWER} characters")
            self._parts.append(text)
        return text

    def _wrong(self, what: str, value: object) -> ModelResponseError:
        return ModelResponseError(f"the server sent {what} of the wrong shape: {self._show(repr(value))}")

    def _show(self, text: str) -> str:
        return bounded(self._redact(text))[:MAX_SHOWN]


def wire_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as the request carries them.

    Lone surrogates, which come from undecodable program output, have no UTF-8 form: servers refuse them, so
    they become question marks.
    """
    return [{"role": m.role, "content": m.content.encode("utf-8", "replace").decode()} for m in messages]


def read_usage(usage: object) -> TokenUsage | None:
    """The reported usage, or None where it is absent or makes no sense."""
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    return TokenUsage(prompt=prompt, cached=min(_cached(usage), prompt), completion=completion)


def _cached(usage: Mapping[str, object]) -> int:
    details = usage.get("prompt_tokens_details")
    if isinstance(details, Mapping):
        return _count(details.get("cached_tokens")) or 0
    return _count(usage.get("prompt_cache_hit_tokens")) or 0  # DeepSeek's name for it


def _count(value: object) -> int | None:
    """A plausible number of tokens. A bool is an int to Python, not here."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_TOKENS else None


def _part(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else ""
    return text if isinstance(text, str) else ""
