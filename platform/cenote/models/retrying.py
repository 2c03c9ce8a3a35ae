"""Runs a model's attempts under a retry policy."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from cenote.models.base import closing
from cenote.models.errors import ModelInterruptedError, ModelUnavailableError
from cenote.models.retry import RetryPolicy
from cenote.models.turn import ReasonedChunk

Attempt = Callable[[], AsyncGenerator[ReasonedChunk, None]]
"""Sends the request once and yields its answer; raises ModelUnavailableError where another try may help."""


async def _sleep(seconds: float) -> None:
    import asyncio  # slow to import

    await asyncio.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How waiting is done: the pause and the dice. Tests bring their own, and take no time."""

    sleep: Callable[[float], Awaitable[None]] = _sleep
    draw: Callable[[], float] = random.random


async def stream_with_retries(
    attempt: Attempt, policy: RetryPolicy, waits: Waits
) -> AsyncGenerator[ReasonedChunk, None]:
    """The chunks of the first attempt that gets through.

    Only an attempt that delivered nothing is repeated: text that a consumer has seen, parsed or run cannot be
    taken back, so a later failure is a ModelInterruptedError and the consumer decides.
    """
    number = 1
    while True:
        partial: list[str] = []
        try:
            async with closing(attempt()) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, str):
                        partial.append(chunk)
                    yield chunk
            return
        except ModelUnavailableError as error:
            if partial:
                raise _interrupted(error, "".join(partial)) from error
            error.attempts = number
            delay = policy.delay(attempt=number, error=error, draw=waits.draw())
            if delay is None:
                raise
        await waits.sleep(delay)
        number += 1


def _interrupted(error: ModelUnavailableError, partial: str) -> ModelInterruptedError:
    return ModelInterruptedError(error.message, partial, status=error.status, code=error.code)
