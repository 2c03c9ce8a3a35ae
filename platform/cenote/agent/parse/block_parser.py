"""Finds the first code block in a model's answer while the answer is still being written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from cenote.agent.parse.scanners import InlineReasoning, OrphanedEnd, OrphanedEnds, StringLiterals

_MAX_INFO = 200
"""Characters of an info string. Bounds what is held back while a line may still turn out to open a block."""

_MAX_FENCE = 200
"""Characters of a fence. Bounds the same."""

_MAX_INDENT = 16
"""CommonMark stops at three spaces outside of lists; models nest blocks in lists without caring for the rest."""

ALIASES = frozenset(
    {"python", "python3", "py", "py3", "ipython", "ipython3", "tool_code", "repl", "python-repl", "pycon"}
)
"""Names that models give to blocks of Python."""

_OPENING = re.compile(
    rf"[ \t]{{0,{_MAX_INDENT}}}(?P<fence>`{{3,{_MAX_FENCE}}}|~{{3,{_MAX_FENCE}}})(?P<info>.{{0,{_MAX_INFO}}})"
)
# Models also open a block right behind their text ("Let me look:```python"). Only the bare language may follow.
_LATE_OPENING = re.compile(
    rf"(?<!`)(?P<fence>`{{3,{_MAX_FENCE}}})(?P<info>[ \t]{{0,8}}[\w+-]{{1,40}}[ \t]{{0,8}})\Z"
)
# What may still become one of the two when more of the line arrives, its carriage return included.
_MAY_OPEN = re.compile(
    rf"[ \t]{{0,{_MAX_INDENT}}}(?:`{{0,2}}|~{{0,2}}|`{{3,{_MAX_FENCE}}}[^`]{{0,{_MAX_INFO + 1}}}|"
    rf"~{{3,{_MAX_FENCE}}}.{{0,{_MAX_INFO + 1}}})"
)
_MAY_OPEN_LATE = re.compile(
    rf"(?<!`)(?:`{{1,2}}|`{{3,{_MAX_FENCE}}}[ \t]{{0,8}}[\w+-]{{0,40}}[ \t]{{0,8}}\r?)\Z"
)
_CLOSING = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})[ \t]*")
# Python knows no backticks: outside of a literal, a fence ends the code whatever follows it, or stands before it.
_CLOSING_OF_CODE = re.compile(r"[ \t]{0,16}(?P<fence>`{3,}+).*")
_CLOSING_BEHIND = re.compile(r"(?<!`)(?P<fence>`{3,}+)[ \t]*+(?:<[^<>]{1,40}>[ \t]*+)*+\Z")
# Behind an identifier of Pandoc's, the directive of notebooks in MyST, or what web pages put before a language.
_LANGUAGE = re.compile(r"[\s{.]*+(?:#[\w-]*+[\s.]++|code-cell\}\s*+|language-)?([\w+-]+)")


class _Inside(Enum):
    TEXT = "text"
    CODE = "code"
    OTHER = "a block in another language"
    REST = "what follows the code block"


@dataclass(frozen=True, slots=True)
class _Fence:
    mark: str
    length: int
    indent: int

    def dedent(self, line: str) -> str:
        return line[min(self.indent, len(line) - len(line.lstrip(" "))) :]

    def is_closed_by(self, line: str) -> bool:
        match = _CLOSING.fullmatch(line)
        return match is not None and match["fence"][0] == self.mark and len(match["fence"]) >= self.length


class BlockParser:
    """Splits an answer into text and the code of its first block in a wanted language.

    Feed it the answer in pieces, cut anywhere; the result is the same for every way of cutting. Fences are those of
    CommonMark: three or more backticks or tildes, with an info string, closed by a line that holds nothing but at
    least as many of the same. Code also ends with a fence that words follow, or that stands at the end of a line of
    it. A closing fence inside a string literal of the code does not count, unless
    the answer ends before that literal does. Blocks in other languages, or in none, and those without a line of code
    are text. Reasoning in front of an answer is none of it.

    language: of code in Python. others: of blocks with another syntax, in which string literals mean nothing.
    """

    def __init__(self, language: str = "python", *others: str) -> None:
        self._languages = ALIASES if language.lower() in ALIASES else frozenset({language.lower()})
        self._others = frozenset(others)
        self._reasoning = InlineReasoning()
        self._orphans = OrphanedEnds()
        self._begin()
        self.unopened = False
        """The end of a reasoning was read whose beginning was not: all before it was reasoning."""

    def _begin(self) -> None:
        self.other = ""
        """Which of the other languages the block is in; empty for code, and before a block opened."""
        self._inside = _Inside.TEXT
        self._fence = _Fence("`", 3, 0)
        self._pieces: list[str] = []  # of the current line; joined late, since a line may come in n pieces
        self._blank = True  # it holds blanks only
        self._length = 0
        self._fresh = True  # nothing of the current line was given out yet
        self._read: list[str] = []
        self._held = ""  # of the line that opened the block, what was not given out
        self._code: list[str] = []
        self._taken = 0  # lines of code that `take_code` has given
        self._literals = StringLiterals()
        self._doubtful: tuple[int, int] | None = (
            None  # lines of code, pieces read, at a fence inside a literal
        )
        self.closed = False
        """The block's closing fence was read."""
        self.length_after = 0  # characters after the block
        self.overrun = False
        """Something other than blanks followed the block: nothing useful comes any more."""

    @property
    def code(self) -> str | None:
        """The code so far, without fences; None before a block opened."""
        if self._inside in (_Inside.TEXT, _Inside.OTHER):
            return None
        return "\n".join(self._code)

    @property
    def ends_here(self) -> bool:
        """Whether a fence of three is all that is on the current line, and closes the block if the line ends here."""
        if self._inside is not _Inside.CODE or self._literals.inside or self._length > _MAX_INDENT + 3:
            return False
        mark = self._line.strip()
        if mark not in ("```", "~~~") or self._fence.length > 3:
            return False
        # Backticks end code at any depth, see `_end_code_unusually`.
        return mark[0] == self._fence.mark and (
            mark == "```" or self._fence.is_closed_by(self._fence.dedent(self._line))
        )

    @property
    def reasoning(self) -> str:
        """What the model wrote to itself so far, in tags in front of its answer."""
        return self._reasoning.text

    def take_reasoning(self) -> str:
        """What of the reasoning was not given before."""
        return self._reasoning.take()

    def take_code(self) -> str:
        """The lines of the block that are whole and were not given before."""
        lines, self._taken = self._code[self._taken :], len(self._code)
        return "".join(f"{line}\n" for line in lines)

    @property
    def answer(self) -> str:
        """The answer up to the end of the block, as written."""
        return "".join(self._read).rstrip() if self.closed else "".join(self._read) + self._line

    def feed(self, piece: str) -> str:
        """Read on; gives the text outside of the block that is certain by now, often less than was fed."""
        return self._split(self._orphans.feed(self._reasoning.outside(piece)))

    def _split(self, parts: list[OrphanedEnd | str]) -> str:
        """Reads on in an answer that is cut at what may end a reasoning: all before such an end is no answer."""
        shown = ""
        for part in parts:
            if isinstance(part, str):
                shown += self._feed(part)
            elif self._ends_reasoning():
                self._reasoning.add(self.answer)
                self._begin()
                self.unopened, shown = True, ""
            else:
                shown += self._feed(part.tag)
        return shown

    def _ends_reasoning(self) -> bool:
        """Whether a tag is meant as one here: not in code, nor quoted in a text."""
        if self._inside is _Inside.CODE:
            return self._blank and not self._literals.inside
        before = self._line or "".join(self._read[-1:])
        return before.endswith("```") or not before.endswith(("`", "'", '"'))

    def _feed(self, piece: str) -> str:
        shown = []
        *lines, rest = piece.split("\n")
        for line in lines:
            self._add(line)
            shown.append(self._end_line("\n"))
        self._add(rest)
        shown.append(self._advance(rest))
        return "".join(shown)

    def finish(self, *, cut_off: bool = False) -> str:
        """The answer is over; gives the text that was still held back.

        cut_off: the answer was not meant to end here, so that a literal that is still open proves nothing.
        """
        shown = self._split(self._orphans.feed(self._reasoning.finish()))
        shown += self._feed(self._orphans.finish())
        shown += self._end_line("") if self._line else ""
        if self._inside is _Inside.CODE and self._doubtful is not None and not cut_off:
            lines, pieces = self._doubtful
            del self._code[lines:], self._read[pieces:]
            self.closed, self._inside = True, _Inside.REST
        return shown

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._blank = self._blank and not piece.strip()
        self._length += len(piece)

    @property
    def _line(self) -> str:
        """What was read of the current line and not given out."""
        if len(self._pieces) != 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _advance(self, piece: str) -> str:
        """What of the unfinished line is certain to be text."""
        match self._inside:
            case _Inside.TEXT:
                return self._give(self._certain())
            case _Inside.REST:
                self.overrun = self.overrun or bool(piece.strip())
        return ""

    def _certain(self) -> int:
        if self._fresh and _MAY_OPEN.fullmatch(self._line):
            return 0
        late = _MAY_OPEN_LATE.search(self._line)
        return late.start() if late else len(self._line)

    def _give(self, count: int) -> str:
        given, self._pieces = self._line[:count], [self._line[count:]]
        if given:
            self._fresh = False
            self._read.append(given)
        return given

    def _end_line(self, end: str) -> str:
        line, fresh = self._line.removesuffix("\r"), self._fresh
        raw = self._line + end
        self._pieces, self._length, self._blank, self._fresh = [], 0, True, True
        match self._inside:
            case _Inside.TEXT:
                return self._end_text_line(line, raw, fresh)
            case _Inside.CODE:
                self._end_code_line(line, raw)
                return self._give_up_empty()
            case _Inside.OTHER:
                self._read.append(raw)
                if self._fence.is_closed_by(self._fence.dedent(line)):
                    self._inside = _Inside.TEXT
                return raw
            case _Inside.REST:
                self.overrun = self.overrun or bool(line.strip())
                self.length_after += len(raw)
                return ""

    def _end_text_line(self, line: str, raw: str, fresh: bool) -> str:
        opening = _OPENING.fullmatch(line) if fresh else None
        late = _LATE_OPENING.search(line)
        self._read.append(raw)
        if opening and not (opening["fence"][0] == "`" and "`" in opening["info"]):
            self._fence = _Fence(opening["fence"][0], len(opening["fence"]), opening.start("fence"))
            self._inside = _Inside.CODE if self._opens(opening["info"]) else _Inside.OTHER
            self._held = raw
            return "" if self._inside is _Inside.CODE else raw
        if late and self._opens(late["info"]):
            self._fence, self._inside = _Fence("`", len(late["fence"]), 0), _Inside.CODE
            self._held = raw[late.start() :]
            return line[: late.start()]
        return raw

    def _opens(self, info: str) -> bool:
        """Whether a block with this info string is wanted; notes its language."""
        match = _LANGUAGE.match(info)
        language = match[1].lower() if match else ""
        if language in self._others:
            self.other = language
        return language in self._languages or language in self._others

    def _end_code_line(self, line: str, raw: str) -> None:
        line = self._fence.dedent(line)
        if not self.other and not self._literals.inside and self._end_code_unusually(line, raw):
            return
        if self._fence.is_closed_by(line):
            if not self._literals.inside:
                self._close(raw)
                return
            self._doubtful = self._doubtful or (len(self._code), len(self._read) + 1)
        self._read.append(raw)
        self._code.append(line)
        if not self.other:
            self._literals.feed(line)
        if not self._literals.inside:
            self._doubtful = None

    def _end_code_unusually(self, line: str, raw: str) -> bool:
        """Whether code ends with a line that is more than its closing fence."""
        if self._fence.mark != "`":
            return False
        match = _CLOSING_OF_CODE.fullmatch(line)
        if match is not None and len(match["fence"]) >= self._fence.length:
            self._close(raw)
            return True
        behind = _CLOSING_BEHIND.search(line)
        if behind is None or len(behind["fence"]) < self._fence.length:
            return False
        code = line[: behind.start()].rstrip(" \t")
        if not code.replace("`", "").strip() or _in_comment(code):
            return False
        self._code.append(code)
        self._close(raw)
        return True

    def _give_up_empty(self) -> str:
        """Goes on behind a block that was closed without code: there is nothing to run. Gives it as text."""
        if not self.closed or self.other or any(line.strip() for line in self._code):
            return ""
        blank = "".join(f"{line}\n" for line in self._code)
        self.closed, self._inside, self._code, self._taken = False, _Inside.TEXT, [], 0
        return f"{self._held}{blank}{self._read[-1]}"

    def _close(self, raw: str) -> None:
        self.closed, self._inside = True, _Inside.REST
        self._read.append(raw)


def _in_comment(code: str) -> bool:
    """Whether what follows may belong to a comment, or to a literal, as far as one line tells."""
    literals = StringLiterals()
    literals.feed(code)
    return "#" in code or literals.inside
