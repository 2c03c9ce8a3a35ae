"""What a cell prints, on its way to a client that may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from cenote_worker.results import StreamName

MOST_QUEUED: Final = 4 * 2**20
"""Characters of a cell's output that wait for a slow reader; more is dropped, and said so in its place."""


class OutputQueue:
    """Output on its way to a reader that may be slow."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, str]] = []
        self._waiting = asyncio.Event()
        self._size = self._dropped = 0
        self._over = False

    def put(self, stream: StreamName, text: str) -> None:
        if self._size + len(text) > MOST_QUEUED:
            self._dropped += len(text)
        else:
            self._size += len(text)
            self._pieces.append((stream, text))
        self._waiting.set()

    def end(self) -> None:
        self._over = True
        self._waiting.set()

    async def __aiter__(self) -> AsyncIterator[tuple[str, str]]:
        while not self._over or self._pieces:
            await self._waiting.wait()
            self._waiting.clear()
            pieces, self._pieces = self._pieces, []
            for stream, text in pieces:
                yield stream, text
                self._size -= len(text)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                yield "dropped", f"{dropped} characters: they were not read fast enough"
            if self._over:
                self._waiting.set()
