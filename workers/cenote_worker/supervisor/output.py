"""What a cell printed, in bounded memory: the beginning and the end, whatever was between."""

from __future__ import annotations

import io
from collections import deque

_CHUNK = 16 * 1024
"""Characters. Small writes are joined to chunks of this size, or a million lines would cost a million strings."""


class HeadAndTail:
    """Collects text up to `limit` characters; beyond it keeps the first and the last halves."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = io.StringIO()
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._last = io.StringIO()
        self._last_size = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        room = self._half - self._head_size
        if room > 0:
            self._head.write(text[:room])
            self._head_size += min(room, len(text))
            text = text[room:]
        if text:
            self._add_to_tail(text)

    def skip(self, characters: int) -> None:
        """So much came that is not known any more."""
        self._head_size = max(self._head_size, self._half)
        self._dropped += characters

    @property
    def truncated(self) -> bool:
        return self._dropped > 0 or self._excess() > 0

    def text(self) -> str:
        tail = "".join(self._tail) + self._last.getvalue()
        excess = self._excess()
        dropped = self._dropped + excess
        if not dropped:
            return self._head.getvalue() + tail
        return f"{self._head.getvalue()}\n[... {dropped} characters left out ...]\n{tail[excess:]}"

    def _add_to_tail(self, text: str) -> None:
        self._last.write(text)
        self._last_size += len(text)
        if self._last_size < _CHUNK:
            return
        self._tail.append(self._last.getvalue())
        self._tail_size += self._last_size
        self._last, self._last_size = io.StringIO(), 0
        while self._tail_size - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def _excess(self) -> int:
        return max(self._tail_size + self._last_size - self._half, 0)
