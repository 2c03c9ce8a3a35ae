"""Attempts are repeated while no text was delivered, and never after."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from tests.fakes.naps import Naps

from cenote.models.errors import ModelError, ModelInterruptedError, ModelResponseError, ModelUnavailableError
from cenote.models.messages import ModelChunk, ModelTurn, TokenUsage
from cenote.models.remote import Attempt, stream_with_retries
from cenote.models.retry import RetryPolicy

TURN = ModelTurn("ok", "stop", TokenUsage())
POLICY = RetryPolicy(attempts=3, base=1.0)


class Attempts:
    """Each attempt yields the chunks of one line and raises the error in it."""

    def __init__(self, *lines: list[ModelChunk | ModelError]) -> None:
        self.lines = list(lines)
        self.closed = 0

    async def __call__(self) -> AsyncGenerator[ModelChunk, None]:
        try:
            for item in self.lines.pop(0):
                if isinstance(item, ModelError):
                    raise item
                yield item
        finally:
            self.closed += 1


async def collect(attempt: Attempt, naps: Naps, into: list[ModelChunk] | None = None) -> list[ModelChunk]:
    received = [] if into is None else into
    async for chunk in stream_with_retries(attempt, POLICY, naps.waits):
        received.append(chunk)
    return received


async def test_a_success_waits_for_nothing(naps: Naps) -> None:
    """Chunks pass as they arrive."""
    assert ["o", "k", TURN] == await collect(Attempts(["o", "k", TURN]), naps)
    assert [] == naps.taken


async def test_failures_before_the_first_text_are_repeated(naps: Naps) -> None:
    """The consumer sees only the successful attempt."""
    busy = ModelUnavailableError("busy")
    assert [TURN] == await collect(Attempts([busy], [busy], [TURN]), naps)
    assert [0.5, 1.0] == naps.taken


async def test_the_last_failure_tells_how_often_it_was_tried(naps: Naps) -> None:
    """One wait fewer than attempts."""
    attempts = Attempts(*[[ModelUnavailableError("busy")] for _ in range(4)])
    with pytest.raises(ModelUnavailableError, match="gave up after 3 attempts"):
        await collect(attempts, naps)
    assert 1 == len(attempts.lines)
    assert 2 == len(naps.taken)


async def test_other_errors_pass_at_once(naps: Naps) -> None:
    """Only an unavailable service can become available."""
    with pytest.raises(ModelResponseError):
        await collect(Attempts([ModelResponseError("what?")], [TURN]), naps)
    assert [] == naps.taken


async def test_a_failure_after_text_is_an_interruption(naps: Naps) -> None:
    """Delivered text cannot be withdrawn: no second answer is appended to it."""
    received: list[ModelChunk] = []
    attempts = Attempts(["half an ", "ans", ModelUnavailableError("gone", status=502)], [TURN])
    with pytest.raises(ModelInterruptedError) as caught:
        await collect(attempts, naps, received)
    assert ("half an ans", 502) == (caught.value.partial, caught.value.status)
    assert ["half an ", "ans"] == received
    assert [] == naps.taken


async def test_closing_the_stream_closes_the_attempt(naps: Naps) -> None:
    """A consumer that stops early leaves no open request."""
    attempts = Attempts(["a", "b", TURN])
    async with aclosing(stream_with_retries(attempts, POLICY, naps.waits)) as chunks:
        assert "a" == await anext(chunks)
        assert 0 == attempts.closed
    assert 1 == attempts.closed
