"""A line of steps as a notebook in Jupyter's format 4.5, with its outputs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any, Final

from cenote.harness.step import Step
from cenote_worker.results import MimeBundle

FORMAT: Final = (4, 5)

MAX_DEPTH: Final = 100
"""Of JSON in an output, which a jail has made: deeper, it stays text. Python's own writer gives up at some 900."""

Json = dict[str, Any]
"""Of a format that is described by a schema, not by types."""


def notebook(steps: Iterable[Step], begun: Iterable[str] = ()) -> Json:
    """begun: names that were there at the start, which the notebook has no code for."""
    cells = [_opening(names)] if (names := ", ".join(f"`{each}`" for each in begun)) else []
    cells += [_code_cell(step) if step.kind == "cell" else _note(step) for step in steps]
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        },
        "nbformat": FORMAT[0],
        "nbformat_minor": FORMAT[1],
    }


def _opening(names: str) -> Json:
    return _markdown("start", f"The runtime began with {names}.", {})


def _markdown(id: str, text: str, metadata: Json) -> Json:
    return {"cell_type": "markdown", "id": id, "metadata": metadata, "source": text}


def _note(step: Step) -> Json:
    names = ", ".join(f"`{each}`" for each in step.names)
    what = {
        "injection": f"{names} put in",
        "deletion": f"{names} deleted",
        "upload": f"{names} uploaded",
        "removal": f"{names} removed",
        "process": f"`{step.code}` run beside the namespace",
    }.get(step.kind, "steps of which nothing is recorded")
    by = step.author or "the owner of the runtime"
    return _markdown(f"step-{step.number}", f"Step {step.number}: {what} by {by}.", _about(step))


def _code_cell(step: Step) -> Json:
    return {
        "cell_type": "code",
        "id": f"step-{step.number}",
        "execution_count": step.number,
        "metadata": _about(step),
        "source": step.code,
        "outputs": _outputs(step),
    }


def _about(step: Step) -> Json:
    return {
        "cenote": {
            "step": step.number,
            "author": step.author,
            "cause": step.cause,
            "status": step.status,
            "reads": list(step.reads),
            "writes": list(step.writes),
        }
    }


def _outputs(step: Step) -> list[Json]:
    streams = [("stdout", step.stdout), ("stderr", step.stderr)]
    found: list[Json] = [
        {"output_type": "stream", "name": name, "text": text} for name, text in streams if text
    ]
    shown = list(step.outputs)
    result: MimeBundle | None = None
    if step.value is not None:
        # The last expression's rich form is the last that was displayed, if it has one.
        rich = shown and shown[-1].get("text/plain") == step.value
        result = shown.pop() if rich else {"text/plain": step.value}
    found += [{"output_type": "display_data", "data": _data(each), "metadata": {}} for each in shown]
    if result is not None:
        executed = {"execution_count": step.number, "data": _data(result), "metadata": {}}
        found.append({"output_type": "execute_result", **executed})
    if (error := step.error) is not None:
        trace = error.traceback.splitlines() or [str(error)]
        failed = {"ename": error.type, "evalue": error.message, "traceback": trace}
        found.append({"output_type": "error", **failed})
    return found


def _data(bundle: MimeBundle) -> Json:
    return {mime: _content(mime, content) for mime, content in bundle.items()}


def _content(mime: str, content: str | bytes) -> object:
    if isinstance(content, bytes):
        return base64.b64encode(content).decode("ascii")
    if mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json")):
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            return content
        return data if _is_plain(data, MAX_DEPTH) else content
    return content


def _is_plain(data: object, depth: int) -> bool:
    """Whether any program reads it as JSON: it is finite, and not deeper than that."""
    if isinstance(data, dict | list):
        parts = data.values() if isinstance(data, dict) else data
        return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)
    return not isinstance(data, float) or math.isfinite(data)
