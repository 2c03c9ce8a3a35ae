"""What the block parser is told of an answer's text, as it comes in.

Takes out what a model wrote to itself in front of its answer, where its server leaves that in the text; and says
whether a line of Python source begins inside a string literal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NAMES: Final = (
    "think",
    "thinking",
    "thought",
    "thoughts",
    "reasoning",
    "reason",
    "reflection",
    "analysis",
    "scratchpad",
)
_TAGS: Final = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    "[THINK]": "[/THINK]",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<seed:think>": "</seed:think>",
    "<|think|>": "<|/think|>",
    "◁think▷": "◁/think▷",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|end|>",
}
_ORPHANS: Final = tuple(dict.fromkeys(end for end in _TAGS.values() if end != "<|end|>"))
_ORPHAN: Final = re.compile("|".join(map(re.escape, _ORPHANS)))
_LONGEST: Final = max(map(len, _ORPHANS))
_BLANKS: Final = re.compile(r"\A[\s\ufeff\u200b]++")
"""With marks of byte order and of places to break, which some answers begin with."""


class InlineReasoning:
    """Reads an answer in pieces, cut anywhere. Only what the answer begins with counts, so tags may be spoken of.

    Where a server's template has opened the tag in the prompt, the answer does not begin with it: see OrphanedEnds.
    """

    def __init__(self) -> None:
        self._blanks: list[str] = []  # what the answer begins with
        self._held = ""  # what may become a tag when more arrives
        self._end = ""  # what the reasoning ends with; empty before it began
        self._over = self._past = False  # past: with the blanks behind it
        self._read: list[str] = []
        self._taken = 0

    @property
    def text(self) -> str:
        """The reasoning so far."""
        return "".join(self._read)

    def take(self) -> str:
        """What of it was not given before."""
        parts, self._taken = self._read[self._taken :], len(self._read)
        return "".join(parts)

    def add(self, text: str) -> None:
        """More that has turned out to be reasoning."""
        self._read.append(text)

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
            return "" if self._over else "".join(self._blanks) + self._held
        self._read.append(self._held)
        return ""

    def _begin(self, text: str) -> str:
        start = _BLANKS.sub("", text)
        self._blanks.append(text[: len(text) - len(start)])
        for tag, end in _TAGS.items():
            if start.startswith(tag):
                self._end, self._held = end, ""
                return self._read_on(start.removeprefix(tag))
        self._over = not any(tag.startswith(start) for tag in _TAGS)
        self._held = "" if self._over else start
        return "".join(self._blanks) + start if self._over else ""

    def _read_on(self, text: str) -> str:
        reasoning, end, rest = text.partition(self._end)
        self._over = bool(end)
        certain = len(reasoning) if end else max(len(reasoning) - len(self._end) + 1, 0)
        self._read.append(reasoning[:certain])
        self._held = reasoning[certain:]
        return rest


@dataclass(frozen=True, slots=True)
class OrphanedEnd:
    """What looks like the end of a reasoning."""

    tag: str


class OrphanedEnds:
    """Cuts an answer, fed in pieces, at each tag that ends a reasoning which the answer did not begin with."""

    def __init__(self) -> None:
        self._held = ""  # what may become a tag when more arrives

    def feed(self, piece: str) -> list[OrphanedEnd | str]:
        """What is certain by now: texts, and the tags between them."""
        text = self._held + piece
        parts: list[OrphanedEnd | str] = []
        position = 0
        for match in _ORPHAN.finditer(text):
            parts += [text[position : match.start()], OrphanedEnd(match[0])]
            position = match.end()
        certain = len(text) - _partial(text[position:])
        parts.append(text[position:certain])
        self._held = text[certain:]
        return [part for part in parts if part]

    def finish(self) -> str:
        """The answer is over; gives what was held back."""
        held, self._held = self._held, ""
        return held


def _partial(text: str) -> int:
    """Characters at the end of a text that may be the beginning of a tag."""
    for size in range(min(_LONGEST - 1, len(text)), 0, -1):
        if text[-size] in "<[◁" and any(tag.startswith(text[-size:]) for tag in _ORPHANS):
            return size
    return 0


_OPENING = re.compile(r"""#|'''|\"{3}|'|\"""")
_CLOSING = {quote: re.compile(rf"\\.|{quote}") for quote in ("'''", '"""', "'", '"')}


class StringLiterals:
    """Follows source line by line. A tokenizer would be exact, but refuses source that is not finished yet.

    A literal in single quotes ends with its line, whatever its quotes say, unless a backslash goes on; so that
    a stray quote mistakes one line, not all that follow.
    """

    def __init__(self) -> None:
        self._quote = ""

    @property
    def inside(self) -> bool:
        """True when the next line begins inside a literal."""
        return bool(self._quote)

    def feed(self, line: str) -> None:
        """Follow one line, given without its line break."""
        position: int | None = 0
        while position is not None:
            position = self._leave(line, position) if self._quote else self._enter(line, position)

    def _enter(self, line: str, position: int) -> int | None:
        match = _OPENING.search(line, position)
        if match is None or match[0] == "#":
            return None
        self._quote = match[0]
        return match.end()

    def _leave(self, line: str, position: int) -> int | None:
        match = _CLOSING[self._quote].search(line, position)
        if match is not None:
            if match[0] == self._quote:
                self._quote = ""
            return match.end()
        goes_on = line.endswith("\\") and position < len(line)
        if len(self._quote) == 1 and not goes_on:
            self._quote = ""
        return None
