"""The code of an answer that is still being written, in the CaveAgent library's terms: segments of text and code.

Cenote's parser finds the block, so this one takes what Cenote's agents take.
"""

from __future__ import annotations

import textwrap
from enum import Enum

from cenote.agent.parse.block_parser import BlockParser
from cenote_security.errors import UsageError


class SegmentType(Enum):
    """What a segment is."""

    TEXT = "text"
    CODE = "code"


class Segment:
    """A piece of the answer's text, or its whole block of code."""

    def __init__(self, segment_type: SegmentType, content: str) -> None:
        self.type = segment_type
        self.content = content

    def __repr__(self) -> str:
        return f"Segment({self.type.value}, {self.content!r})"


class StreamingTextParser:
    """Splits an answer into segments, up to the end of its first block of code.

    remainder: what of the last chunk stands after that end; it was not read.
    """

    def __init__(self, language_identifier: str = "python") -> None:
        if not isinstance(language_identifier, str) or not language_identifier.strip():
            raise UsageError(f"language_identifier is the word after ```, not {language_identifier!r:.100}")
        self.language_identifier = language_identifier
        self.first_code_block_completed = False
        self._parser = BlockParser(language_identifier)
        self._begin()

    def process_chunk(self, chunk: str) -> list[Segment]:
        """Read on. The text that is certain by now, and the block once it has been closed."""
        if self.first_code_block_completed:
            self.remainder = chunk
            return []
        self.remainder = ""
        segments: list[Segment] = []
        for index, character in enumerate(chunk, 1):
            segments += self._text(self._parser.feed(character))
            if self._is_closed():
                segments += self._block()
                self.first_code_block_completed = True
                self.remainder = chunk[index:]
                break
        return segments

    def flush(self) -> list[Segment]:
        """The answer is over: what was held back, with code whose block was not closed. Then begin anew."""
        segments: list[Segment] = []
        if not self.first_code_block_completed:
            segments = self._text(self._parser.finish())
            segments += self._block() if self._parser.code is not None else []
        self._begin()
        return segments

    def is_first_code_block_completed(self) -> bool:
        """Whether its end was read."""
        return self.first_code_block_completed

    def _begin(self) -> None:
        self.first_code_block_completed = False
        self.remainder = ""
        self._parser = BlockParser(self.language_identifier)
        self._given = 0  # characters of the answer that segments of text have

    def _is_closed(self) -> bool:
        """Whether the block is closed now, if nothing else comes on this line."""
        if self._parser.closed:
            return True
        if self._parser.ends_here and (self._parser.code or "").strip():
            self._parser.feed("\n")
        return self._parser.closed

    def _block(self) -> list[Segment]:
        """The block that was read. One without code is text."""
        code = textwrap.dedent(self._parser.code or "").strip()
        return [Segment(SegmentType.CODE, code)] if code else self._text(self._parser.answer[self._given :])

    def _text(self, text: str) -> list[Segment]:
        self._given += len(text)
        return [Segment(SegmentType.TEXT, text)] if text else []
