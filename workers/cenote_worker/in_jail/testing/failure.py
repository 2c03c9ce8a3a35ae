"""Why a test did not pass, as data."""

from __future__ import annotations

import linecache
import traceback

from cenote_worker.in_jail.bounded import bounded_str, shorten
from cenote_worker.in_jail.frames import Step, characters, owner_of, short_path, steps_of
from cenote_worker.in_jail.testing.apart import Plain
from cenote_worker.in_jail.tracebacks import exception_name
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_MESSAGE = 1_000
_TRACEBACK = 4_000


def explained(error: BaseException) -> Plain:
    """Type, message, file, span and traceback. Where nothing says what is wrong, the failing line does."""
    linecache.checkcache()
    steps = [step for step in steps_of(error) if step.owner in ("user", "cell")]
    innermost = steps[-1] if steps else None
    message = bounded_str(error, _MESSAGE)
    if not message and innermost is not None:
        message = shorten(_line(innermost, innermost.line).strip(), _MESSAGE)
    return {
        "type": exception_name(type(error)),
        "message": message,
        "file": _file(innermost.filename) if innermost is not None else "",
        "span": _span(innermost) if innermost is not None else [],
        "traceback": shorten(_text(error), _TRACEBACK),
    }


def ended(reason: str) -> Plain:
    """Of a test whose process is gone."""
    return {"type": "ProcessEnded", "message": reason, "file": "", "span": [], "traceback": ""}


def _text(error: BaseException) -> str:
    """Without the frames that led to the test."""
    first = error.__traceback__
    while first is not None and owner_of(first.tb_frame.f_code.co_filename) == "cenote":
        first = first.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, first))
    except Exception:  # a hostile `__str__`
        return ""


def _span(step: Step) -> list[int]:
    """Line, column, end line, end column: lines from 1, columns from 0, in characters."""
    position = step.position
    if position is None:
        return [step.line, 0, step.line, len(_line(step, step.line))]
    first, last = _line(step, position.line), _line(step, position.end_line)
    start, end = characters(first, position.column), characters(last, position.end_column)
    return [position.line, start, position.end_line, end]


def _line(step: Step, number: int) -> str:
    return linecache.getline(step.filename, number).rstrip("\n")


def _file(filename: str) -> str:
    return filename if filename.startswith("<") else short_path(filename)
