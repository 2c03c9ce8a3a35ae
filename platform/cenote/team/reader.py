"""Looking at values without taking them in: pieces of what a reference stands for, as bounded text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from cenote.runtime import AsyncPythonRuntime, ObjectReference
from cenote.runtime.injectables import Variable
from cenote.team.bell import Bell
from cenote.team.runtimes import OwnedRuntime, RuntimeFactory
from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable

MAX_TEXT = 8_000
"""Characters of one piece. What is longer belongs into code; a jail that sends more is cut off here."""

MOST_FOUND = 100
AT_ONCE = 4
"""Jails that read for one team: hostile code asks as often as it can."""

SECONDS = 60.0
"""Time for one piece. The jail loads the value, which may be made by hostile code."""


class Reader:
    """Opens references in jails of their own, which end with each question: what one value's code does there is not
    seen by the next.

    sandbox: of those jails; without a network and mounts, whatever it says. seconds: for one question.
    """

    def __init__(self, runtimes: RuntimeFactory, sandbox: SandboxPolicy, seconds: float = SECONDS) -> None:
        self._runtimes = runtimes
        self._seconds = seconds
        self._sandbox = replace(sandbox, network="none", mounts=())
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._place_is_free = Bell()

    async def preview(self, reference: ObjectReference) -> str:
        """Type, shape, size, schema, and how the value begins and ends; the same for equal values."""
        shape = f" {reference.shape}" if reference.shape is not None else ""
        head = printable(f"{reference.type}{shape}, {reference.size} bytes; {reference.description}")
        return f"{head}\n{await self._ask(reference, 'preview(value)')}"

    async def read(self, reference: ObjectReference, start: int = 0, stop: int = 20) -> str:
        """The rows, items, entries or characters from `start` to before `stop`, as slices count them."""
        _check(int, start=start, stop=stop)
        return await self._ask(reference, f"piece(value, {start:d}, {stop:d})")

    async def search(self, reference: ObjectReference, text: str, most: int = 20) -> str:
        """The first rows, items, entries or places in a text that hold `text`, with their positions."""
        _check(str, text=text)
        _check(int, most=most)
        if not text or not 1 <= most <= MOST_FOUND:
            raise UsageError(f"a search is for a text that is not empty, and for 1 to {MOST_FOUND} places")
        return await self._ask(reference, f"occurrences(value, {text!r}, {most:d})")

    async def _ask(self, reference: ObjectReference, expression: str) -> str:
        function = expression.partition("(")[0]
        code = f"from cenote_worker.in_jail.extracts import {function}\nprint({expression}, end='')"
        async with self._place():
            runtime = OwnedRuntime(self._runtimes("reader", self._sandbox), tuple)
            try:
                async with asyncio.timeout(self._seconds):
                    return await _answer(runtime.face, reference, code)
            except TimeoutError:
                raise RejectedError(f"this value cannot be read in {self._seconds:g} seconds") from None
            finally:
                await runtime.close()

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[None, None]:
        await self._place_is_free.until(lambda: self._places.acquire(blocking=False) or None)
        try:
            yield
        finally:
            self._places.release()
            self._place_is_free.ring()


async def _answer(runtime: AsyncPythonRuntime, reference: ObjectReference, code: str) -> str:
    await runtime.inject(Variable("value", reference))
    result = await runtime.execute(code)
    if not result.success:
        reason = f"{result.error.type}: {result.error.message}" if result.error else "no reason given"
        raise RejectedError(f"this value cannot be read: {printable(reason[:500])}")
    text = result.stdout
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[cut at {MAX_TEXT} characters]"


def _check(kind: type, **arguments: object) -> None:
    for name, argument in arguments.items():
        if type(argument) is not kind:
            raise UsageError(f"{name} is of type {kind.__name__}, not {type(argument).__name__}")
