"""An exception that ended a cell, as data and as text.

A traceback is written as a model should read it: the user's frames with their source, one line for the library's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cenote_proto.scalars import utf8_text
from cenote_worker.execution.results import ErrorInfo, Span
from cenote_worker.jail.cells.source import CellCompiler
from cenote_worker.jail.errors.hints import Hints, limit_reached
from cenote_worker.jail.errors.traceback_frames import (
    ErrorFrame,
    characters,
    short_path,
    source_line,
    span_in,
    steps_of,
)
from cenote_worker.jail.output.limits import KernelLimits
from cenote_worker.jail.rendering.bounded_text import bounded_str, module_name, shorten, type_name
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MOST_CHAINED = 4
_MOST_IN_GROUP = 5
_MOST_DEPTH = 3
_MOST_NOTES = 5
_MEMBER_CHARS = 300
_HEAD, _TAIL = 4, 8
"""Frames shown of a deep stack: at its beginning and at its end."""

_LINE_CHARS = 160

_cause_of = BaseException.__dict__["__cause__"].__get__
_context_of = BaseException.__dict__["__context__"].__get__
_suppresses = BaseException.__dict__["__suppress_context__"].__get__
_dict_of = BaseException.__dict__["__dict__"].__get__
_members_of = BaseExceptionGroup.__dict__["exceptions"].__get__
_FACTS = {
    name: SyntaxError.__dict__[name].__get__ for name in ("filename", "lineno", "offset", "text", "msg")
}
_end_offset_of = SyntaxError.__dict__["end_offset"].__get__
_end_line_of = SyntaxError.__dict__["end_lineno"].__get__


class Tracebacks:
    """Writes tracebacks for cells of one compiler. Special methods of hostile exceptions cannot break it."""

    def __init__(self, compiler: CellCompiler, limits: KernelLimits) -> None:
        self._compiler = compiler
        self._limits = limits

    def text(self, error: BaseException, message: str) -> str:
        """The traceback of an error whose message (hints included) is known; bounded."""
        lines: list[str] = []
        for earlier, link in reversed(list(_chain(error))):
            lines += [*self._block(earlier, self.message(earlier), 0), link]
        lines += self._block(error, message, 0)
        if lines[0].startswith("  "):
            lines.insert(0, "Traceback (most recent call last):")
        return _bounded(lines, self._limits.traceback_chars)

    def message(self, error: BaseException) -> str:
        """The exception's own message, bounded."""
        if isinstance(error, SyntaxError):
            return bounded_str(_FACTS["msg"](error), self._limits.message_chars)
        if isinstance(error, BaseExceptionGroup):
            return bounded_str(BaseExceptionGroup.__str__(error), self._limits.message_chars)
        return bounded_str(error, self._limits.message_chars)

    def inside(self, error: BaseException) -> str:
        """The members of a group, in short: its message alone only says how many there are."""
        if not isinstance(error, BaseExceptionGroup):
            return ""
        texts = [
            f"{exception_name(type(each))}: {shorten(self.message(each), _MEMBER_CHARS)}".removesuffix(": ")
            for each in islice(_leaves(error, 0), _MOST_IN_GROUP + 1)
        ]
        more = "; ..." if len(texts) > _MOST_IN_GROUP else ""
        return f": {'; '.join(texts[:_MOST_IN_GROUP])}{more}"

    def _block(self, error: BaseException, message: str, depth: int) -> list[str]:
        steps = steps_of(error)
        lines = list(self._frames(steps))
        if isinstance(error, SyntaxError):
            lines += self._syntax(error)
        name = exception_name(type(error))
        lines += f"{name}: {message}".split("\n") if message else [name]
        lines += self._notes(error)
        if isinstance(error, BaseExceptionGroup):
            lines += self._group(error, depth)
        return lines

    def _group(self, group: BaseExceptionGroup[BaseException], depth: int) -> Iterator[str]:
        members: tuple[BaseException, ...] = _members_of(group)
        if depth >= _MOST_DEPTH:
            yield f"  ... {len(members)} exceptions inside"
            return
        for number, member in enumerate(members[:_MOST_IN_GROUP], 1):
            yield f"  {number} of {len(members)}:"
            for line in self._block(member, self.message(member), depth + 1):
                yield f"    {line}"
        if len(members) > _MOST_IN_GROUP:
            yield f"  ... {len(members) - _MOST_IN_GROUP} more"

    def _notes(self, error: BaseException) -> list[str]:
        notes = _dict_of(error).get("__notes__")
        if type(notes) is not list:
            return []
        return [f"  {bounded_str(note, 500)}" for note in notes[:_MOST_NOTES]]

    # -- frames --

    def _frames(self, steps: list[ErrorFrame]) -> Iterator[str]:
        """The user's frames, and the library's line that raised if it was a library's."""
        users = [step for step in steps if step.owner != "library"]
        runs = list(_collapsed(users))
        for index, (step, repeats) in enumerate(runs):
            if len(runs) > _HEAD + _TAIL and index == _HEAD:
                yield f"  ... {len(runs) - _HEAD - _TAIL} frames left out ..."
            if index < _HEAD or index >= len(runs) - _TAIL:
                yield from self._frame(step)
                if repeats > 1:
                    yield f"  [the same frame {repeats - 1:,} more times]"
        if steps and steps[-1].owner == "library":
            last = steps[-1]
            within = f", in {last.function}" if last.function else ""
            yield utf8_text(f"  in {short_path(last.filename)[-200:]}:{last.line}{within}")

    def _frame(self, step: ErrorFrame) -> Iterator[str]:
        within = f", in {step.function}" if step.function else ""
        yield utf8_text(f"  {place(step.filename)}, line {step.line}{within}")
        line = source_line(self._compiler, step.filename, step.line)
        if line.strip():
            yield from self._source(step, line)

    def _source(self, step: ErrorFrame, line: str) -> Iterator[str]:
        code = line.strip()
        indent = len(line) - len(line.lstrip())
        position = step.position
        if (
            position is None
            or position.line != step.line
            or self._compiler.is_rewritten(step.filename, step.line)
        ):
            yield f"    {shorten(code, _LINE_CHARS)}"
            return
        start = max(characters(line, position.column) - indent, 0)
        end = characters(line, position.end_column) - indent if position.end_line == step.line else len(code)
        yield from _underlined(code, start, min(end, len(code)))

    def _syntax(self, error: SyntaxError) -> Iterator[str]:
        filename, number, offset, text, _ = (_FACTS[name](error) for name in _FACTS)
        if type(filename) is not str or type(number) is not int:
            return
        yield utf8_text(f"  {place(filename)}, line {number}")
        line = source_line(self._compiler, filename, number) or (text if type(text) is str else "")
        if not line.strip():
            return
        code = line.strip()
        start = (offset if type(offset) is int else 1) - 1 - (len(line) - len(line.lstrip()))
        end = _end_offset_of(error) if _end_line_of(error) == number else None
        width = end - offset if type(end) is int and type(offset) is int else 1
        start = min(max(start, 0), len(code))
        yield from _underlined(code, start, start + min(max(width, 1), _LINE_CHARS))


def exception_name(cls: type) -> str:
    """`ValueError`, `Mine` for a class of the namespace, `json.decoder.JSONDecodeError` for the others."""
    module = module_name(cls)
    plain = module in ("builtins", "__main__", "") or module.startswith("cenote_worker.")
    return utf8_text(type_name(cls) if plain else f"{module}.{type_name(cls)}")


def place(filename: str) -> str:
    """`cell 3`, or the short path of a file."""
    if filename.startswith("<cell ") and filename.endswith(">"):
        return filename[1:-1]
    return short_path(filename)[-200:]


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Exceptions that led to this one, the nearest first, each with the line that links it to the next."""
    seen = {id(error)}
    for _ in range(_MOST_CHAINED):
        cause, context = _cause_of(error), _context_of(error)
        earlier = cause if cause is not None else None if _suppresses(error) else context
        if earlier is None or id(earlier) in seen or _adds_nothing(earlier, error):
            return
        seen.add(id(earlier))
        yield earlier, "which was the cause of:" if cause is not None else "while it was handled, came:"
        error = earlier


def _adds_nothing(earlier: BaseException, error: BaseException) -> bool:
    """Whether a library only raised its own inner exception again: none of its frames is the user's.

    The chain ends there: what is below it concerns only the library.
    """
    if type(earlier) is not type(error):
        return False
    steps = steps_of(earlier)
    return bool(steps) and all(step.owner == "library" for step in steps)


def _collapsed(steps: list[ErrorFrame]) -> Iterator[tuple[ErrorFrame, int]]:
    """Runs of the same line of the same function, with their lengths."""
    previous: ErrorFrame | None = None
    count = 0
    for step in steps:
        if previous and (step.frame.f_code, step.line) == (previous.frame.f_code, previous.line):
            count += 1
            continue
        if previous:
            yield previous, count
        previous, count = step, 1
    if previous:
        yield previous, count


def _underlined(code: str, start: int, end: int) -> Iterator[str]:
    """A source line, with a line of carets unless they would stand under all of it; cut around them if long."""
    whole = start <= 0 and end >= len(code)
    if len(code) > _LINE_CHARS:
        cut = max(min(start - 40, len(code) - _LINE_CHARS), 0)
        code, start, end = code[cut : cut + _LINE_CHARS], start - cut, min(end - cut, _LINE_CHARS)
    yield f"    {utf8_text(code)}"
    if not whole and end > start:
        yield f"    {' ' * start}{'^' * (end - start)}"


def _bounded(lines: list[str], limit: int) -> str:
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    head, tail = limit // 4, limit - limit // 4
    return f"{text[:head]}\n... {len(text) - limit:,} characters left out ...\n{text[-tail:]}"


def _leaves(error: BaseException, depth: int) -> Iterator[BaseException]:
    """The members of nested groups, to a depth; below that a group stands for its members."""
    if not isinstance(error, BaseExceptionGroup) or depth > _MOST_DEPTH:
        yield error
        return
    for member in _members_of(error):
        yield from _leaves(member, depth + 1)


_syntax_line = SyntaxError.__dict__["lineno"].__get__
_syntax_offset = SyntaxError.__dict__["offset"].__get__
_syntax_end_line = SyntaxError.__dict__["end_lineno"].__get__
_syntax_end_offset = SyntaxError.__dict__["end_offset"].__get__
_syntax_file = SyntaxError.__dict__["filename"].__get__
_exit_code_of = SystemExit.__dict__["code"].__get__


class Failures:
    """Explains the errors of cells of one compiler."""

    def __init__(self, compiler: CellCompiler, limits: KernelLimits) -> None:
        self._compiler = compiler
        self._limits = limits
        self._tracebacks = Tracebacks(compiler, limits)
        self._hints = Hints(compiler)

    def explain(self, error: BaseException, filename: str) -> ErrorInfo:
        """The error of the cell of that name, with hints, its traceback and the failing expression.

        Never raises, unless an interrupt comes while a hostile `__str__` is at work.
        """
        message = self._message(error)
        return ErrorInfo(
            type=utf8_text(type_name(type(error))),
            message=shorten(f"{message}{self._tracebacks.inside(error)}", self._limits.message_chars),
            traceback=self._tracebacks.text(error, message),
            span=self._span(error, filename),
            reason=reason_of(error),
        )

    def _message(self, error: BaseException) -> str:
        if isinstance(error, KeyboardInterrupt):
            return "the cell was interrupted"
        if isinstance(error, SystemExit):
            return _exit_message(_exit_code_of(error))
        text, hint = self._tracebacks.message(error), self._hints.of(error)
        return shorten(_joined(text, hint), self._limits.message_chars)

    def _span(self, error: BaseException, filename: str) -> Span | None:
        if isinstance(error, SyntaxError) and _syntax_file(error) == filename:
            return _syntax_span(error)
        return span_in(self._compiler, filename, steps_of(error))


def brief(error: BaseException) -> ErrorInfo:
    """The error without anything that could fail again: for use when explaining it failed."""
    return ErrorInfo(type=utf8_text(type_name(type(error))), message="", reason=reason_of(error))


def reason_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupt"
    if isinstance(error, SystemExit):
        return "exit"
    return limit_reached(error) or "exception"


def exit_status(error: SystemExit) -> int:
    """The status a process would end with: 0 for None, 1 for a message."""
    code = _exit_code_of(error)
    if code is None:
        return 0
    return int(code) if isinstance(code, int) else 1


def _exit_message(code: object) -> str:
    return f"exit status {code}" if type(code) is int else bounded_str(code, 1_000)


def _joined(text: str, hint: str) -> str:
    if not hint or not text:
        return text or hint
    return f"{text}\n{hint}" if "\n" in text else f"{text}; {hint}"


def _syntax_span(error: SyntaxError) -> Span | None:
    line, offset = _syntax_line(error), _syntax_offset(error)
    if type(line) is not int or type(offset) is not int:
        return None
    end_line, end_offset = _syntax_end_line(error), _syntax_end_offset(error)
    if type(end_line) is not int or type(end_offset) is not int or (end_line, end_offset) <= (line, offset):
        end_line, end_offset = line, offset + 1
    column = max(offset - 1, 0)
    return Span(line=line, column=column, end_line=end_line, end_column=max(end_offset - 1, 0))
