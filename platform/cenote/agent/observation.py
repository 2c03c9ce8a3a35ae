"""What a model is shown of a cell's run: as short as it can be without losing what counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cenote_worker.results import ErrorInfo, ExecutionResult, MimeBundle

NOTHING = "(no output)"

_MAX_ERROR = 1500
"""Characters of an error line. Its start says what happened, its end holds the hints."""

_MAX_FAILING_LINE = 100
"""Characters of the failing line of code that an error quotes."""

_TAIL_SHARE = 0.4
"""Of what is shown of a long output, the part that shows its end: where results are, and where failures come last."""

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
    """The text of a result, in the order in which a notebook shows it."""
    parts = [result.stdout, *_displayed(result), result.value or "", _stderr(result.stderr)]
    output = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    if result.truncated:
        output += "\n(the middle was dropped: more than the runtime keeps)"
    return Observation(output=output, error=error_line(result.error, code) if result.error else "")


def error_line(error: ErrorInfo, code: str) -> str:
    """`NameError: name 'dff' is not defined; nearest: df [line 3: dff.head()]`.

    The line is quoted only where there are others.
    """
    message = " ".join(error.message.split())
    text = message if message.startswith(f"{error.type}:") else f"{error.type}: {message}".removesuffix(": ")
    if len(text) > _MAX_ERROR:
        text = f"{text[: _MAX_ERROR // 2]} ... {text[-_MAX_ERROR // 2 :]}"
    return text + _failing_line(error, code)


def cut(text: str, limit: int, handle: str) -> str:
    """Head and tail of a text of more than `limit` characters, and how to read the rest.

    handle: an expression for the whole text.
    """
    tail = int(limit * _TAIL_SHARE)
    start, end = _line_end(text, limit - tail), _line_start(text, len(text) - tail)
    gap = f"[... {end - start} characters left out; {handle}[{start}:{end}] reads them]"
    return f"{text[:start]}\n{gap}\n{text[end:]}"


def _line_end(text: str, position: int) -> int:
    """The end of a line not long before `position`, so that no row is shown in halves; else `position`."""
    found = text.rfind("\n", position * 3 // 4, position)
    return position if found < 0 else found


def _line_start(text: str, position: int) -> int:
    found = text.find("\n", position, position + (len(text) - position) // 4)
    return position if found < 0 else found + 1


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
