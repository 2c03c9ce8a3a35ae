"""What may be said of a variable or of an error, as a message: written alike by a worker and by the client."""

from __future__ import annotations

from typing import Final

from cenote_proto.scalars import unsigned, utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_worker.pristine import BUILTINS
from cenote_worker.results import ErrorInfo, VariableInfo

__builtins__ = BUILTINS

MAX_POSITION: Final = 2**31
"""No file has a line or column beyond this: a program may raise a SyntaxError with any numbers in it."""


def fill(message: jail_pb2.VariableInfo, info: VariableInfo) -> None:
    """Says `info` in `message`. Reading it back is the edge's business, since it may come from a jail.

    CPython gives a negative size for a negative number of 181 bits and more, and a library's object gives any.
    """
    message.name, message.type = utf8_text(info.name), utf8_text(info.type)
    message.size, message.description = unsigned(info.size), utf8_text(info.description)
    if info.shape is not None:
        message.has_shape = True
        message.shape.extend(map(unsigned, info.shape))


def fill_error(message: jail_pb2.CellError, error: ErrorInfo) -> None:
    """The same for an error. A span that no source text can have is left out."""
    message.type, message.message = utf8_text(error.type), utf8_text(error.message)
    message.traceback, message.reason = utf8_text(error.traceback), utf8_text(error.reason)
    message.outside = error.outside
    message.verdict, message.limit = utf8_text(error.verdict.kind), utf8_text(error.verdict.limit)
    if (span := error.span) is not None:
        positions = (span.line, span.column, span.end_line, span.end_column)
        if all(0 <= each <= MAX_POSITION for each in positions):
            message.span.extend(positions)
