"""A history as a file for other programs."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cenote.harness.graph import graph, to_dot, to_mermaid
from cenote.harness.notebook import notebook
from cenote.harness.past import Past
from cenote.harness.step import Step
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.file_systems import check_path

_FIELDS: Final = tuple(name for name in vars(Step) if isinstance(getattr(Step, name), property))

FORMATS: Final = (".ipynb", ".json", ".mmd", ".dot")


def exported(past: Past, suffix: str) -> str:
    """The text of a file with this suffix: the notebook of the line to the head; all lines in the other formats.

    Raises UsageError for a suffix that is none of FORMATS.
    """
    match suffix:
        case ".ipynb":
            steps = [Step(record) for record in past.line(past.head) if record.stays]
            return _json(notebook(steps, past.begun))
        case ".json":
            steps = [Step(record) for record in past.all()]
            return _json(
                {"head": past.head, "steps": [as_data(step) for step in steps], "graph": graph(past)}
            )
        case ".mmd":
            return to_mermaid(graph(past))
        case ".dot":
            return to_dot(graph(past))
    raise UsageError(f"{suffix or 'no suffix'!r} is none of {', '.join(FORMATS)}")


def export(past: Past, path: str | Path) -> Path:
    """Writes the file. Raises UsageError for an unknown suffix, UnavailableError where nothing can be written."""
    if not isinstance(path, str | Path):
        raise UsageError(f"an export is written to a path, not to {path!r:.100}")
    check_path(str(path))
    path = Path(path)
    text = exported(past, path.suffix)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UnavailableError(
            f"{str(path)!r} cannot be written: {error.strerror}; name another place"
        ) from error
    return path


def as_data(step: Step) -> dict[str, Any]:
    """A step for JSON; bytes as base64."""
    data = {field: getattr(step, field) for field in _FIELDS}
    calls = [asdict(call) for call in step.host_calls]
    return {
        **data,
        "error": asdict(step.error) if step.error is not None else None,
        "outputs": [{mime: _text(part) for mime, part in bundle.items()} for bundle in step.outputs],
        "host_calls": [
            {**call, "arguments": _text(call["arguments"]), "reply": _text(call["reply"])} for call in calls
        ],
    }


def _text(content: str | bytes | None) -> str | None:
    return base64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=True) + "\n"
