"""What a model is shown of a cell's run: as short as it can be without losing what counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cenote_security.printable import printable
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, MimeBundle

NOTHING = "(no output)"

_MAX_ERROR = 1500
"""Characters of an error line. Its start says what happened, its end holds the hints."""

_MAX_FAILING_LINE = 100
"""Characters of the failing line of code that an error quotes."""

_TAIL_SHARE = 0.4
"""Of what is shown of a long output, the part that shows its end: where results are, and where failures come last."""

_MOVE = re.compile("\r|\b|\x1b\\[(?P<count>[0-9]{0,4})(?P<what>[AKm])|\x1b\\[[0-9;:]*m|\x1b\\[\\?25[hl]")
"""What moves the cursor within a page and erases, as progress bars use it; also what only changes its looks."""

_WIDTH = 200
"""Columns of the page in which a cursor moves up and erases, as a terminal has them. Without a bound, n characters
that write to the right of each of n rows would be shown as n²."""

_NEXT_RECORD = re.compile(r"\n(?=\S)")
"""A line that is not indented follows."""

_TEXTS = ("text/plain", "text/markdown", "text/latex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A cell's run in text.

    output: all that was printed, displayed and returned; empty if nothing was.
    error: one line, empty for a cell that succeeded.
    """

    output: str
    error: str


def observe(result: ExecutionResult, code: str) -> Observation:
    """The text of a result, in the order in which a notebook shows it: what was printed as it was written."""
    parts = [*_printed(result), *_displayed(result), result.value or ""]
    if not result.printed_in_turns or "\r" in result.stderr:
        # Of a line that is drawn again between others, only how it ends up is of use.
        parts = [result.stdout, *_displayed(result), result.value or "", _stderr(shown(result.stderr))]
    output = "\n".join(part.rstrip("\n") for part in map(shown, parts) if part.strip())
    if result.truncated:
        output += "\n(the middle was dropped: more than the runtime keeps)"
    return Observation(output=output, error=error_line(result.error, code) if result.error else "")


def aftermath(result: ExecutionResult) -> list[str]:
    """What a cell has changed beside its output, a line each: its fate, what other authors did, what happened
    outside."""
    state = {
        "lost": ["The namespace is lost and begins empty."],
        "rolled_back": ["The namespace is as it was before this code."],
    }
    return [*state.get(result.state, []), *map(str, result.notices), *result.news]


def error_line(error: ErrorInfo, code: str) -> str:
    """`NameError: name 'dff' is not defined; nearest: df [line 3: dff.head()]`.

    The line is quoted only where there are others.
    """
    message = " ".join(error.message.split())
    text = message if message.startswith(f"{error.type}:") else f"{error.type}: {message}".removesuffix(": ")
    if len(text) > _MAX_ERROR:
        text = f"{text[: _MAX_ERROR // 2]} ... {text[-_MAX_ERROR // 2 :]}"
    return printable(text + _failing_line(error, code), lines=True)


def shown(text: str) -> str:
    """What a terminal would show: lines that overwrite themselves as they end up. The rest of what would act on one
    is escaped; colours are left out.
    """
    return printable(_overwritten(text), lines=True)


def _overwritten(text: str) -> str:
    if not any(control in text for control in "\r\b\x1b"):
        return text
    rows: list[str | list[str]] = []
    at = -1
    for line in text.split("\n"):
        at += 1
        if at == len(rows):
            rows.append("")
        at = _write(rows, at, line)
    return "\n".join(row if isinstance(row, str) else "".join(row) for row in rows)


def _write(rows: list[str | list[str]], at: int, line: str) -> int:
    """Writes one line from the left of a row; the row that it ends in."""
    if not rows[at] and not _MOVE.search(line):
        rows[at] = line
        return at
    column = end = 0
    for move in _MOVE.finditer(line):
        column = _put(rows, at, column, line[end : move.start()])
        end = move.end()
        if move[0] == "\r":
            column = 0
        elif move[0] == "\b":
            column = max(column - 1, 0)
        elif move["what"] == "A":
            at, column = max(at - int(move["count"] or 1), 0), min(column, _WIDTH)
        elif move["what"] == "K":
            column = min(column, _WIDTH)
            _erase(_cells(rows, at), column, move["count"])
    _put(rows, at, column, line[end:])
    return at


def _put(rows: list[str | list[str]], at: int, column: int, text: str) -> int:
    if text:
        cells = _cells(rows, at)
        cells.extend(" " * (column - len(cells)))
        cells[column : column + len(text)] = text
    return column + len(text)


def _erase(cells: list[str], column: int, part: str) -> None:
    """part: 1 for what is left of the cursor, 2 for all, else what is right of it."""
    if part in ("1", "2"):
        cells[:column] = " " * min(column, len(cells))
    if part != "1":
        del cells[column:]


def _cells(rows: list[str | list[str]], at: int) -> list[str]:
    cells = rows[at]
    if isinstance(cells, str):
        cells = rows[at] = list(cells)
    return cells


def cut(text: str, limit: int, handle: str) -> str:
    """Head and tail of a text of more than `limit` characters, and how to read the rest.

    handle: an expression for the whole text.
    """
    tail = int(limit * _TAIL_SHARE)
    start, end = _line_end(text, limit - tail), _line_start(text, len(text) - tail)
    gap = f"[... {end - start} characters left out; {handle}[{start}:{end}] reads them]"
    return f"{text[:start]}\n{gap}\n{text[end:]}"


def _line_end(text: str, position: int) -> int:
    """The end of a line not long before `position`, of one that belongs to no later one if that can be: no record and
    no row is shown in halves. Else `position`."""
    begin = position * 3 // 4
    whole = list(_NEXT_RECORD.finditer(text, begin, position + 1))
    found = whole[-1].start() if whole else text.rfind("\n", begin, position)
    return position if found < 0 else found


def _line_start(text: str, position: int) -> int:
    end = position + (len(text) - position) // 4
    whole = _NEXT_RECORD.search(text, position, end)
    found = whole.start() if whole else text.find("\n", position, end)
    return position if found < 0 else found + 1


def _printed(result: ExecutionResult) -> Iterable[str]:
    for stream, text in result.printed:
        yield text if stream == "stdout" else _stderr(shown(text))


def _stderr(text: str) -> str:
    return f"stderr: {text.strip()}" if text.strip() else ""


def _displayed(result: ExecutionResult) -> Iterable[str]:
    for bundle in result.outputs:
        text = _bundle_text(bundle)
        # The last expression is both the value and, in its rich form, an output.
        if text.strip() != (result.value or "").strip():
            yield text


def _bundle_text(bundle: MimeBundle) -> str:
    images = [f"[{kind} {_size(data)}]" for kind, data in bundle.items() if kind.startswith("image/")]
    if images:
        return images[0]
    for kind in _TEXTS:
        if isinstance(text := bundle.get(kind), str):
            return text
    return " ".join(f"[{kind} {_size(data)}]" for kind, data in bundle.items())


def _size(data: str | bytes) -> str:
    count = len(data.encode("utf-8", "replace")) if isinstance(data, str) else len(data)
    return f"{count} B" if count < 1000 else f"{round(count / 1000)} kB"


def _failing_line(error: ErrorInfo, code: str) -> str:
    lines = code.split("\n")
    if error.span is None or len(lines) == 1 or not 1 <= error.span.line <= len(lines):
        return ""
    line = lines[error.span.line - 1].strip()
    shown = line if len(line) <= _MAX_FAILING_LINE else line[:_MAX_FAILING_LINE] + "..."
    return f" [line {error.span.line}: {shown}]"
