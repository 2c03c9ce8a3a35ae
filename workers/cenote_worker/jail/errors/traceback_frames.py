"""The frames of an exception, sorted by whose code they ran: the user's, a library's, Cenote's own."""

from __future__ import annotations

import linecache
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Literal

import cenote_security
import cenote_worker
from cenote_worker.execution.results import Span
from cenote_worker.jail.cells.source import CellCompiler
from cenote_worker.jail.tracking.process_state.modules import is_of_library, path_in_library
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Owner = Literal["cell", "user", "library", "cenote"]

_MOST_FRAMES = 100_000
"""Frames looked at. A higher recursion limit than this is a mistake or an attack."""

_MOST_FILE_BYTES = 2_000_000
"""Size of a user's module whose source lines are shown. A hostile file name may refer to any file."""

_STANDARD = f"{Path(os.__file__).parent}/"
_OURS = tuple(f"{Path(package.__file__ or '').parent}/" for package in (cenote_worker, cenote_security))
_COMPILED = (".pyx", ".pxi", ".pxd")

_traceback_of = BaseException.__dict__["__traceback__"].__get__
_known_lines = linecache.cache
_stat, _is_regular = os.stat, stat.S_ISREG


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """Where in its file a frame was, in lines from 1 and columns in UTF-8 bytes from 0."""

    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFrame:
    """One frame of a traceback. instruction: index into its bytecode."""

    owner: Owner
    frame: FrameType
    line: int
    instruction: int

    @property
    def filename(self) -> str:
        return self.frame.f_code.co_filename

    @property
    def function(self) -> str:
        """The qualified name, empty at the top level of a cell or module."""
        name = self.frame.f_code.co_qualname.replace("<locals>.", "")[:100]
        return "" if name == "<module>" else name

    @property
    def position(self) -> SourcePosition | None:
        """The failing expression; None if the code has no position for it."""
        return _position(self.frame.f_code, self.instruction)


def steps_of(error: BaseException) -> list[ErrorFrame]:
    """Frames from the outermost to the one that raised, Cenote's own left out."""
    owners: dict[str, Owner] = {}
    steps = []
    for trace in _links(error):
        filename = trace.tb_frame.f_code.co_filename
        owner = owners.get(filename) or owners.setdefault(filename, owner_of(filename))
        if owner != "cenote":
            steps.append(
                ErrorFrame(
                    owner=owner, frame=trace.tb_frame, line=trace.tb_lineno, instruction=trace.tb_lasti
                )
            )
    return steps


def raised_in(error: BaseException) -> str:
    """The file of the code that raised it, Cenote's own included; empty if unknown."""
    frames = [link.tb_frame for link in _links(error)]
    return frames[-1].f_code.co_filename if frames else ""


def _links(error: BaseException) -> Iterator[TracebackType]:
    trace: TracebackType | None = _traceback_of(error)
    for _ in range(_MOST_FRAMES):
        if trace is None:
            return
        yield trace
        trace = trace.tb_next


def owner_of(filename: str) -> Owner:
    if filename.startswith("<cell "):
        return "cell"
    if filename.startswith(_OURS):
        return "cenote"
    if filename.startswith((_STANDARD, "<frozen ", "<__array_function__")) or filename.endswith(_COMPILED):
        return "library"
    return "library" if is_of_library(filename) else "user"


def short_path(filename: str) -> str:
    """A library's file from its package on, a user's from the working directory on."""
    if (inside := path_in_library(filename)) is not None:
        return inside
    if filename.startswith(_STANDARD):
        return filename[len(_STANDARD) :]
    try:
        return filename.removeprefix(f"{Path.cwd()}/")
    except Exception:  # the working directory is gone
        return filename


def source_line(compiler: CellCompiler, filename: str, number: int) -> str:
    """A line of a cell or of a user's file; empty when it cannot be read safely."""
    if compiler.is_cell(filename):
        return compiler.line(filename, number)
    if not _is_readable(filename):
        return ""
    try:
        return linecache.getline(filename, number).rstrip("\n")
    except Exception:  # linecache has been replaced, or the file is not text
        return ""


def _is_readable(filename: str) -> bool:
    if filename in _known_lines:
        return True
    try:
        status = _stat(filename)
    except (OSError, ValueError):
        return False
    return _is_regular(status.st_mode) and status.st_size <= _MOST_FILE_BYTES


def span_in(compiler: CellCompiler, filename: str, steps: list[ErrorFrame]) -> Span | None:
    """The failing expression in the cell of that name: of the innermost frame that belongs to it."""
    for step in reversed(steps):
        if step.filename == filename:
            return _span(compiler, step)
    return None


def _span(compiler: CellCompiler, step: ErrorFrame) -> Span | None:
    position = step.position
    if position is None or compiler.is_rewritten(step.filename, position.line):
        line = compiler.line(step.filename, step.line)
        indent = len(line) - len(line.lstrip())
        return Span(line=step.line, column=indent, end_line=step.line, end_column=len(line))
    first = compiler.line(step.filename, position.line)
    last = compiler.line(step.filename, position.end_line)
    return Span(
        line=position.line,
        column=characters(first, position.column),
        end_line=position.end_line,
        end_column=characters(last, position.end_column),
    )


def characters(line: str, column: int) -> int:
    """Characters of the line before a column that counts UTF-8 bytes."""
    return len(line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))


def _position(code: CodeType, instruction: int) -> SourcePosition | None:
    if instruction < 0:
        return None
    line, end_line, column, end_column = next(
        islice(code.co_positions(), instruction // 2, None), (None, None, None, None)
    )
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return SourcePosition(line=line, end_line=end_line, column=column, end_column=end_column)
