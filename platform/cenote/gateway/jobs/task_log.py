"""What a task did, as text, of which head and tail are kept. Pure."""

from __future__ import annotations

from typing import Final

from cenote.agent.events import Event, EventType
from cenote_worker.results import ExecutionResult

HEAD: Final = 16 * 2**10
TAIL: Final = 16 * 2**10
"""Characters."""


class TaskLogText:
    """Of one attempt."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0
        self._last = ""

    def __str__(self) -> str:
        cut = f"\n... {self._left_out} characters left out ...\n" if self._left_out else ""
        return self._head + cut + self._tail

    @property
    def left_out(self) -> int:
        return self._left_out

    def cell(self, what: str, result: ExecutionResult) -> None:
        """what: `setup`, or `code`."""
        for heading, text in (
            (f"{what}: output", result.stdout),
            (f"{what}: errors", result.stderr),
            (f"{what}: failed", str(result.error) if result.error is not None else ""),
        ):
            self.block(heading, text)

    def hear(self, event: Event) -> None:
        """Of the agent."""
        if event.type.is_passing:
            return
        if event.type is EventType.TEXT:
            self._add(event.content if self._last == "text" else f"--- text\n{event.content}", "text")
        else:
            self.block(event.type.value, event.content)

    def block(self, heading: str, text: str) -> None:
        if text:
            self._add(f"--- {heading}\n{text}", heading)

    def _add(self, text: str, kind: str) -> None:
        """A piece of another kind begins on a line of its own."""
        before = self._tail or self._head
        text = text if kind == self._last == "text" or not before or before.endswith("\n") else f"\n{text}"
        self._last = kind
        room = HEAD - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        self._left_out += max(0, len(tail) - TAIL)
        self._tail = tail[-TAIL:]
