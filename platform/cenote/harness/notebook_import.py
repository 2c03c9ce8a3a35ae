"""A notebook as a history: its code cells run in a runtime, a step each, and are compared with what it recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from cenote_security.errors import UsageError
from cenote_worker.execution.results import ErrorInfo, ExecutionResult

MOST_BYTES: Final = 256 * 2**20
"""Of a notebook, which is read into memory. Its pictures are what makes it large."""

FORMAT: Final = 4
"""Of nbformat. Jupyter itself converts earlier ones."""

EXPECTED: Final = "raises-exception"
"""Jupyter's tag for a cell that is meant to fail."""

_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{5,}\b")

Json = dict[str, Any]
"""Of a format that is described by a schema, not by types."""


class NotebookRuntime(Protocol):
    """A runtime, such as PythonRuntime."""

    def execute(self, code: str) -> ExecutionResult:
        """See PythonRuntime."""


@dataclass(frozen=True, slots=True)
class ShownOutputs:
    """What a cell has printed and displayed, as far as two runs can be compared: no pictures, no addresses."""

    printed: str
    displayed: tuple[str, ...]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookCell:
    """A code cell. number: its place among all cells, from 1. recorded: None where it has not been run."""

    number: int
    code: str
    recorded: ShownOutputs | None
    may_fail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCell:
    """A cell that has run. number: its place among all cells, from 1. differs: from what the notebook recorded, where
    it recorded anything. may_fail: the notebook has an error there, or the tag `raises-exception`.
    """

    number: int
    step: int
    error: ErrorInfo | None
    differs: bool
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedNotebook:
    """left: numbers of the cells that did not run, since one before them failed that was not meant to."""

    cells: tuple[ImportedCell, ...]
    left: tuple[int, ...]

    @property
    def different(self) -> tuple[int, ...]:
        """Numbers of the cells that gave something else than the notebook recorded."""
        return tuple(cell.number for cell in self.cells if cell.differs)


def import_notebook(
    runtime: NotebookRuntime, path: str | Path, *, keep_going: bool = False
) -> ImportedNotebook:
    """Runs the code cells of a notebook in order, so that the runtime's graph, slices and patches are about them.

    Stops at a cell that fails, unless the notebook recorded an error there or tagged it `raises-exception`.
    keep_going: does not stop. Raises UsageError for a file that is no notebook of Python; nothing has run then.
    """
    cells = read_notebook(path)
    done = list[ImportedCell]()
    for cell in cells:
        result = runtime.execute(cell.code)
        differs = cell.recorded is not None and cell.recorded != _shown(result)
        done.append(
            ImportedCell(
                number=cell.number,
                step=result.step,
                error=result.error,
                differs=differs,
                may_fail=cell.may_fail,
            )
        )
        if not (result.success or cell.may_fail or keep_going):
            break
    return ImportedNotebook(cells=tuple(done), left=tuple(cell.number for cell in cells[len(done) :]))


def read_notebook(path: str | Path) -> tuple[NotebookCell, ...]:
    """The code cells of a notebook, without empty ones. Raises UsageError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if len(text) > MOST_BYTES:
        raise UsageError(f"{str(path)!r} has more than {MOST_BYTES:,} bytes: clear its outputs")
    try:
        notebook = json.loads(text)
        why_not = _why_not(notebook)
        numbered = enumerate(() if why_not else notebook["cells"], 1)
        cells = [_cell(number, cell) for number, cell in numbered if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{str(path)!r} is no notebook of Jupyter's format {FORMAT}") from None
    if why_not:
        raise UsageError(f"{str(path)!r} {why_not}")
    return tuple(cell for cell in cells if cell.code.strip())


def _why_not(notebook: Json) -> str:
    """Of a notebook that cannot run here; empty for one that can."""
    if (version := int(notebook["nbformat"])) != FORMAT:
        return f"has the format {version}, not {FORMAT}: save it again in Jupyter"
    metadata = notebook.get("metadata", {})
    language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
    return f"is of the language {language!r:.100}, not of Python" if language not in (None, "python") else ""


def _cell(number: int, cell: Json) -> NotebookCell:
    outputs = cell.get("outputs", [])
    was_run = bool(outputs) or cell.get("execution_count") is not None
    recorded = _recorded(outputs) if was_run else None
    tags = cell.get("metadata", {}).get("tags", [])
    may_fail = EXPECTED in tags or (recorded is not None and recorded.error != "")
    return NotebookCell(number=number, code=_text(cell["source"]), recorded=recorded, may_fail=may_fail)


def _text(text: str | Iterable[str]) -> str:
    """nbformat has lists of lines, too."""
    return text if isinstance(text, str) else "".join(text)


def _recorded(outputs: Iterable[Mapping[str, Any]]) -> ShownOutputs:
    printed, displayed, error = "", list[str](), ""
    for output in outputs:
        match output["output_type"]:
            case "stream" if output["name"] == "stdout":
                printed += _text(output["text"])
            case "display_data" | "execute_result":
                displayed.append(_comparable(_text(output["data"].get("text/plain", ""))))
            case "error":
                error = output["ename"]
    return ShownOutputs(_comparable(printed), tuple(displayed), error)


def _shown(result: ExecutionResult) -> ShownOutputs:
    displayed = [str(bundle.get("text/plain", "")) for bundle in result.outputs]
    # The rich form of the last expression's value is the last output, if it has one.
    if result.value is not None and (not displayed or displayed[-1] != result.value):
        displayed.append(result.value)
    error = "" if result.error is None else result.error.type
    return ShownOutputs(_comparable(result.stdout), tuple(map(_comparable, displayed)), error)


def _comparable(text: str) -> str:
    return _ADDRESS.sub("0x", text).rstrip()
