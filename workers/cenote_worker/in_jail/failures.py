"""An exception that ended a cell, as data."""

from __future__ import annotations

from cenote_proto.scalars import utf8_text
from cenote_worker.in_jail.bounded import bounded_str, shorten, type_name
from cenote_worker.in_jail.cells import CellCompiler
from cenote_worker.in_jail.exhaustion import limit_reached
from cenote_worker.in_jail.frames import span_in, steps_of
from cenote_worker.in_jail.hints import Hints
from cenote_worker.in_jail.limits import KernelLimits
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.tracebacks import Tracebacks
from cenote_worker.results import ErrorInfo, Span

__builtins__ = BUILTINS

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
    """The error without anything that could fail again: for when explaining it did."""
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
