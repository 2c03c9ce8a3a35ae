"""Takes out what a model wrote to itself in front of its answer, where its server leaves that in the text."""

from __future__ import annotations

_TAGS = {"<think>": "</think>", "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}


class InlineReasoning:
    """Reads an answer in pieces, cut anywhere. Only what the answer begins with counts, so tags may be spoken of.

    Where a server's template has opened the tag in the prompt, the answer does not begin with it: that cannot be told
    from text in time, and is for the server's own parser of reasoning.
    """

    def __init__(self) -> None:
        self._held = ""  # what may become a tag when more arrives
        self._end = ""  # what the reasoning ends with; empty before it began
        self._over = self._past = False  # past: with the blanks behind it
        self._read: list[str] = []

    @property
    def text(self) -> str:
        """The reasoning so far."""
        return "".join(self._read)

    def outside(self, piece: str) -> str:
        """What of the answer is certain to be no reasoning."""
        if not self._over:
            piece = self._read_on(self._held + piece) if self._end else self._begin(self._held + piece)
        if self._over and not self._past:
            piece = piece.lstrip() if self._end else piece
            self._past = bool(piece)
        return piece

    def finish(self) -> str:
        """The answer is over; gives what was held back."""
        if self._over or not self._end:
            return "" if self._over else self._held
        self._read.append(self._held)
        return ""

    def _begin(self, text: str) -> str:
        start = text.lstrip()
        for tag, end in _TAGS.items():
            if start.startswith(tag):
                self._end, self._held = end, ""
                return self._read_on(start.removeprefix(tag))
        self._over = not any(tag.startswith(start) for tag in _TAGS)
        self._held = "" if self._over else text
        return text if self._over else ""

    def _read_on(self, text: str) -> str:
        reasoning, end, rest = text.partition(self._end)
        self._over = bool(end)
        certain = len(reasoning) if end else max(len(reasoning) - len(self._end) + 1, 0)
        self._read.append(reasoning[:certain])
        self._held = reasoning[certain:]
        return rest
