"""Reads the body of a chat completion's HTTP response, streamed or whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from cenote.models.base import closing
from cenote.models.completion import MAX_ANSWER, Completion
from cenote.models.errors import ModelResponseError, ModelUnavailableError
from cenote.models.sse import EventParser
from cenote.models.turn import ReasoningDelta

if TYPE_CHECKING:
    import httpx

MAX_ERROR_BODY = 64 * 2**10
"""Bytes of an error response that are read; its reason stands at the beginning."""

_LAST_EVENT = "[DONE]"
_PAGE = "a web page came instead of an answer; is the base URL right? Many end in /v1"


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
        raise ModelResponseError(_PAGE)
    try:
        pieces = completion.read_json(body.decode("utf-8", "replace"))
    except ModelResponseError as error:
        raise failure or error from None
    if completion.finish_reason is None and not pieces:
        raise ModelResponseError("the server sent JSON that holds no answer")
    return pieces


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
