"""What a chat completion has said so far, read from an HTTP response's body, streamed or whole, or from chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cenote.models.base import closing
from cenote.models.errors import ModelResponseError, ModelUnavailableError, Redact, bounded, refusal_in_stream
from cenote.models.messages import Message, ReasoningDelta, TokenUsage
from cenote.models.sse import EventParser

if TYPE_CHECKING:
    import httpx


MAX_ANSWER = 8 * 2**20
"""Characters. No model writes a hundredth of it; a broken server's endless answer ends here."""

MAX_TOKENS = 2**40
"""A server that reports more tokens than this for one call is not believed."""

_REASONING = ("reasoning_content", "reasoning", "thinking")
"""Members that hold what a model writes to itself: DeepSeek's, vLLM's and llama.cpp's; OpenRouter's and Ollama's."""

MAX_SHOWN = 200
"""Characters of a malformed chunk that an error shows."""


class _ToolCall:
    """A call of a tool, as its pieces arrive."""

    def __init__(self) -> None:
        self.name: list[str] = []
        self.arguments: list[str] = []

    @property
    def text(self) -> str:
        arguments = "".join(self.arguments)
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = arguments
        return f"\n<tool_call>\n{json.dumps({'name': ''.join(self.name), 'arguments': given})}\n</tool_call>"


class Completion:
    """Takes chunks of the OpenAI chat completions format, streamed (`delta`) or whole (`message`).

    on_progress: called when something of an answer arrives: text, reasoning, a call of a tool, its end.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact  # for what errors show of the server's words
        self._parts: list[str] = []
        self._length = 0
        self._reasoning = ""  # what `read` is yet to give out
        self._calls: dict[int, _ToolCall] = {}
        self.refusal = ""  # what a model that declines says instead of an answer: never a part of `text`
        self.on_progress: Callable[[], None] = nothing
        self.has_begun = False
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None  # as reported; None until a chunk brings it

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def has_answer(self) -> bool:
        """Whether anything of an answer has arrived."""
        return self._length > 0

    def progress(self) -> None:
        """The server has begun to answer, or goes on with it."""
        self.has_begun = True
        self.on_progress()

    def read(self, chunk: object) -> list[str | ReasoningDelta]:
        """As `absorb`, with the reasoning that the chunk adds."""
        return self._with_reasoning(self.absorb(chunk))

    def read_json(self, data: str) -> list[str | ReasoningDelta]:
        """As `read`, for a chunk that is still JSON."""
        return self._with_reasoning(self.absorb_json(data))

    def _with_reasoning(self, text: str) -> list[str | ReasoningDelta]:
        reasoning, self._reasoning = self._reasoning, ""
        return [*([ReasoningDelta(reasoning)] if reasoning else []), *([text] if text else [])]

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
        if reason:
            self.finish_reason = str(reason)[:100]
            self.progress()
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise self._wrong("a delta", delta)
        self._reason(delta)
        # A model that declines says why in `refusal`, instead of content.
        if refusal := self._content(delta.get("refusal")):
            self._count(refusal)
            self.refusal += refusal
        self._call(delta.get("tool_calls"))
        return self._keep(self._content(delta.get("content")))

    def _reason(self, delta: Mapping[str, object]) -> None:
        """Reasoning comes in members of its own, or as parts of the content; the answer is without it."""
        content = delta.get("content")
        parts = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
        given = [delta.get(name) for name in _REASONING] + [_thinking(part) for part in parts]
        # Some servers send it under two names.
        if reasoning := next((text for text in given if isinstance(text, str) and text), ""):
            self._count(reasoning)
            self._reasoning += reasoning

    def _call(self, calls: object) -> None:
        """Takes down calls of tools, which a server may read out of the text itself, although none were offered."""
        for call in calls if isinstance(calls, Sequence) and not isinstance(calls, str) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping):
                continue
            index = call.get("index")
            kept = self._calls.setdefault(index if isinstance(index, int) else len(self._calls), _ToolCall())
            for text, into in (
                (function.get("name"), kept.name),
                (function.get("arguments"), kept.arguments),
            ):
                if isinstance(text, str) and text:
                    self._count(text)
                    into.append(text)

    def close_tool_calls(self) -> str:
        """The answer is over: what its calls of tools add to the text, in the form in which models write them.

        Empty where there are none.
        """
        calls, self._calls = self._calls, {}
        return self._keep("".join(call.text for call in calls.values()))

    def _content(self, content: object) -> str:
        """Text of a content member: a string, null, or a list of typed parts of which only text counts."""
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, Sequence):
            raise self._wrong("content", content)
        return "".join(_part(part) for part in content)

    def _keep(self, text: str) -> str:
        if text:
            self._count(text)
            self._parts.append(text)
        return text

    def _count(self, text: str) -> None:
        self._length += len(text)
        if self._length > MAX_ANSWER:
            raise ModelResponseError(f"the answer is longer than {MAX_ANSWER} characters")
        self.progress()

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


def _thinking(part: object) -> str:
    """The reasoning in a part of a content, as Mistral's and Anthropic's models have it."""
    if not (isinstance(part, Mapping) and part.get("type") in ("thinking", "reasoning")):
        return ""
    thinking = part.get("thinking") or part.get("text")
    if isinstance(thinking, Sequence) and not isinstance(thinking, str):
        thinking = "".join(map(_part, thinking))
    return thinking if isinstance(thinking, str) else ""


def nothing() -> None:
    """No limit of time depends on this completion."""


MAX_ERROR_BODY = 64 * 2**10
"""Bytes of an error response that are read; its reason stands at the beginning."""

_LAST_EVENT = "[DONE]"
WEB_PAGE = "a web page came instead of an answer; is the base URL right? Many end in /v1"


async def read_answer(
    response: httpx.Response, completion: Completion
) -> AsyncGenerator[str | ReasoningDelta, None]:
    """Feeds the answer to `completion` and yields the pieces of its text and of its reasoning.

    A server that answers a streaming request with one JSON document is understood, too.
    """
    if response.headers.get("content-type", "").startswith("application/json"):
        for piece in await _whole(response, completion):
            yield piece
        return
    async with closing(_events(response, completion)) as events:
        async for event in events:
            if event.strip() == _LAST_EVENT:
                return
            for piece in completion.read_json(event):
                yield piece
    if completion.finish_reason is None:
        raise ModelUnavailableError("the connection ended in the middle of the answer")


async def read_error(response: httpx.Response) -> str:
    """The beginning of an error response."""
    body, _ = await _read(response, MAX_ERROR_BODY)  # what went wrong after it says less than what it says
    return body.decode("utf-8", "replace")


async def read_page(response: httpx.Response, limit: int) -> str:
    """A page of bounded size. What is beyond that, or was lost on the way, is left out."""
    body, _ = await _read(response, limit)
    return body.decode("utf-8", "replace")


async def _whole(response: httpx.Response, completion: Completion) -> list[str | ReasoningDelta]:
    body, failure = await _read(response, MAX_ANSWER)
    if _is_markup(body):
        raise ModelResponseError(WEB_PAGE)
    try:
        pieces = completion.read_json(body.decode("utf-8", "replace"))
    except ModelResponseError as error:
        raise failure or error from None
    if completion.finish_reason is None and not pieces:
        raise ModelResponseError(
            "the server sent JSON that holds no answer; is the base URL right? Many end in /v1"
        )
    return pieces


async def _events(response: httpx.Response, completion: Completion) -> AsyncGenerator[str, None]:
    """The events of the body. A connection lost after the finish reason has lost nothing of the answer."""
    import httpx

    parser = EventParser()
    begun = False
    try:
        async for data in response.aiter_bytes():
            if not begun and _is_markup(data):
                raise ModelResponseError(WEB_PAGE)
            begun = begun or bool(data.strip())
            for event in parser.feed(data):
                yield event
    except httpx.RequestError:
        if completion.finish_reason is None:
            raise
    for event in parser.finish():
        yield event


def _is_markup(body: bytes) -> bool:
    """Whether it begins as a page does, which no event and no JSON document can."""
    return body.lstrip().startswith(b"<")


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, httpx.RequestError | None]:
    """At most `limit` bytes of the body, and how the connection failed if it did; what is beyond is not read."""
    import httpx

    body = bytearray()
    failure = None
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) >= limit:
                break
    except httpx.RequestError as error:
        failure = error
    return bytes(body[:limit]), failure
