"""Reads the body of a chat completion's HTTP response, streamed or whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from cenote.models.completion import MAX_ANSWER, Completion
from cenote.models.errors import ModelResponseError, ModelUnavailableError
from cenote.models.sse import EventParser

if TYPE_CHECKING:
    import httpx

MAX_ERROR_BODY = 64 * 2**10
"""Bytes of an error response that are read; its reason stands at the beginning."""

_LAST_EVENT = "[DONE]"
_PAGE = "a web page came instead of an answer; is the base URL right? Many end in /v1"


async def read_answer(response: httpx.Response, completion: Completion) -> AsyncGenerator[str, None]:
    """Feeds the answer to `completion` and yields the pieces of its text.

    A server that answers a streaming request with one JSON document is understood, too.
    """
    if response.headers.get("content-type", "").startswith("application/json"):
        yield await _whole(response, completion)
        return
    async with aclosing(_events(response, completion)) as events:
        async for event in events:
            if event.strip() == _LAST_EVENT:
                return
            if delta := completion.absorb_json(event):
                yield delta
    if completion.finish_reason is None:
        raise ModelUnavailableError("the connection ended in the middle of the answer")


async def read_error(response: httpx.Response) -> str:
    """The beginning of an error response."""
    return (await _read(response, MAX_ERROR_BODY)).decode("utf-8", "replace")


async def _whole(response: httpx.Response, completion: Completion) -> str:
    body = await _read(response, MAX_ANSWER)
    if _is_markup(body):
        raise ModelResponseError(_PAGE)
    text = completion.absorb_json(body.decode("utf-8", "replace"))
    if completion.finish_reason is None and not text:
        raise ModelResponseError("the server sent JSON that holds no answer")
    return text


async def _events(response: httpx.Response, completion: Completion) -> AsyncGenerator[str, None]:
    """The events of the body. A connection lost after the finish reason has lost nothing of the answer."""
    import httpx

    parser = EventParser()
    begun = False
    try:
        async for data in response.aiter_bytes():
            if not begun and _is_markup(data):
                raise ModelResponseError(_PAGE)
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


async def _read(response: httpx.Response, limit: int) -> bytes:
    """At most `limit` bytes of the body; what is beyond is not read."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) >= limit:
            break
    return bytes(body[:limit])
