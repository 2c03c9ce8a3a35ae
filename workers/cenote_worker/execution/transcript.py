"""The output of one cell, in order, for a client that has received a part of it."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass, field

from cenote_worker.execution.results import StreamName

_PIECE = 16 * 1024
"""Characters. Small writes are joined to pieces of this size, or a million lines would cost a million pieces."""


@dataclass(slots=True, eq=False)
class _Piece:
    stream: StreamName
    text: io.StringIO = field(default_factory=io.StringIO)
    size: int = 0


class CellTranscript:
    """Both streams together. Positions are characters from the cell's start; the last `limit` of them are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[_Piece] = deque()
        self._begin = 0
        self.end = 0
        """Characters printed so far, kept or not."""

    def add(self, stream: StreamName, text: str) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.stream != stream or last.size >= _PIECE:
            last = _Piece(stream)
            self._pieces.append(last)
        last.text.write(text)
        last.size += len(text)
        self.end += len(text)
        while self.size - self._pieces[0].size >= self._limit:
            self._begin += self._pieces.popleft().size

    def skip(self, characters: int) -> None:
        """Counts output that is not known any more."""
        self._pieces.clear()
        self.end += characters
        self._begin = self.end

    @property
    def size(self) -> int:
        """Characters kept: at most one piece over the limit, so that nothing that fits is cut."""
        return self.end - self._begin

    def after(self, position: int) -> tuple[int, list[tuple[StreamName, str]]]:
        """How many characters after `position` are not kept, and what was printed after those."""
        wanted = max(position, self._begin)
        rest: list[tuple[StreamName, str]] = []
        start = self._begin
        for piece in self._pieces:
            text = piece.text.getvalue()[max(wanted - start, 0) :]
            if text:
                rest.append((piece.stream, text))
            start += piece.size
        return wanted - position, rest
