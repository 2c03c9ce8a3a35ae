"""A history for other programs: nodes and edges as plain data, and files.

A graph is also text that Mermaid and Graphviz draw. A notebook is in Jupyter's format 4.5 and has the outputs.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from cenote.harness.record.history_index import HistoryIndex
from cenote.harness.record.step import Step
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.execution.results import MimeBundle
from cenote_worker.history.history import History, no_collections
from cenote_worker.history.step import START, StepRecord
from cenote_worker.history.tree import Inputs, written
from cenote_worker.process.file_systems import check_path

MAX_LABEL: Final = 60
"""Characters of a step's first line of code, and of the symbols on an edge."""


class Node(TypedDict):
    """live: whether the step is on the line to the head."""

    id: int
    kind: str
    label: str
    author: str
    cause: str
    status: str
    origin: int
    writes: list[str]
    started: float
    duration: float
    unknown: list[str]
    live: bool


class Edge(TypedDict):
    """kind: `parent`: the step began in that state; `data`: it took `symbols` from that step; `unknown`: it may have
    taken anything from it. Edges point from what was first.
    """

    source: int
    target: int
    kind: str
    symbols: list[str]


class Graph(TypedDict):
    """Step 0 is the start, with what was there before any step."""

    head: int
    nodes: list[Node]
    edges: list[Edge]


def graph(past: HistoryIndex, steps: Iterable[int] | None = None) -> Graph:
    """All lines of a history; or these steps, with the edges that lead to them.

    Raises UnknownEntryError for a step that is not there.
    """
    shown = past.history.beside(ShownSteps)
    live = {record.number for record in past.line(past.head)}
    numbers = None if steps is None else dict.fromkeys(steps)
    records = past.all() if numbers is None else [past.get(number) for number in numbers if number != START]
    nodes, edges = list[Node](), list[Edge]()
    if numbers is None or START in numbers:
        nodes.append(_start(past))
    with no_collections(len(records)):
        for record in records:
            number = record.number
            seen = shown.get(past.history, record)
            node = seen.node.copy()
            node["writes"], node["unknown"] = node["writes"].copy(), node["unknown"].copy()
            node["live"] = number in live
            nodes.append(node)
            edges.append({"source": record.parent, "target": number, "kind": "parent", "symbols": []})
            for source, kind, symbols in seen.edges:
                edges.append({"source": source, "target": number, "kind": kind, "symbols": [*symbols]})
    return {"head": past.head, "nodes": nodes, "edges": edges}


def takers(past: HistoryIndex, number: int) -> tuple[int, ...]:
    """See ExecutionState."""
    past.check(number)
    return past.history.beside(ShownSteps).takers(number)


class ShownSteps:
    """Rendered steps, kept beside their history: repeated exports show mostly the same steps."""

    def __init__(self) -> None:
        self._by_number: dict[int, _ShownStep] = {}
        self._takers: dict[int, list[int]] = {}
        """Of each step, those with a `data` or `unknown` edge from it. Two threads may add the same."""

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See HistoryObserver."""
        for record in records:
            self.get(history, record)

    def takers(self, number: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._takers.get(number, ())))

    def get(self, history: History, record: StepRecord) -> _ShownStep:
        found = self._by_number.get(record.number)
        if found is None:
            inputs = history.dependencies.inputs(record.number)
            found = _shown(record, inputs)
            for source, _, _ in found.edges:
                self._takers.setdefault(source, []).append(record.number)
            self._by_number[record.number] = found
        return found


class _ShownStep(NamedTuple):
    """What has to be worked out of a step, and stays. node: to be copied. edges: source, kind, symbols."""

    node: Node
    edges: tuple[tuple[int, str, tuple[str, ...]], ...]


def _start(past: HistoryIndex) -> Node:
    return {
        "id": START,
        "kind": "start",
        "label": "start",
        "author": "",
        "cause": "",
        "status": "ok",
        "origin": START,
        "writes": list(past.begun),
        "started": 0.0,
        "duration": 0.0,
        "unknown": [],
        "live": True,
    }


def _node(record: StepRecord) -> Node:
    return {
        "id": record.number,
        "kind": record.kind,
        "label": _label(record),
        "author": record.author,
        "cause": record.cause,
        "status": record.status,
        "origin": record.origin,
        "writes": sorted([place.removeprefix("name:") for place in written(record)]),
        "started": record.started,
        "duration": record.duration,
        "unknown": [*record.unknown],
        "live": False,
    }


def _label(record: StepRecord) -> str:
    first = record.code.lstrip()[: MAX_LABEL + 1].partition("\n")[0].rstrip()
    text = first or f"{record.kind} {', '.join(record.names)}".strip()
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _shown(record: StepRecord, inputs: Inputs) -> _ShownStep:
    """The edges besides that from its parent."""
    sources: dict[int, list[str]] = {}
    for place, writer in inputs.seen.items():
        symbol = place.removeprefix("name:")  # see `symbol_of`: here a call counts
        if writer in sources:
            sources[writer].append(symbol)
        else:
            sources[writer] = [symbol]
    edges = [(writer, "data", tuple(symbols)) for writer, symbols in sources.items()]
    doubt = record.parent if record.unknown else inputs.shadow
    if doubt != START:
        edges.append((doubt, "unknown", ()))
    return _ShownStep(_node(record), tuple(edges))


# -- text --


def to_mermaid(drawn: Graph) -> str:
    """A flowchart for Mermaid: data flows along arrows, perhaps along dotted ones; lines lead to the next step."""
    lines = ["flowchart TD"]
    for node in drawn["nodes"]:
        lines.append(f'    s{node["id"]}["{_mermaid_text(_title(node))}"]')
    for edge in drawn["edges"]:
        arrow = {"parent": "---", "unknown": "-.->"}.get(edge["kind"], "-->")
        label = f'|"{_mermaid_text(_symbols(edge))}"|' if edge["symbols"] else ""
        lines.append(f"    s{edge['source']} {arrow}{label} s{edge['target']}")
    dead = [f"s{node['id']}" for node in drawn["nodes"] if not node["live"]]
    if dead:
        lines += ["    classDef past opacity:0.5", f"    class {','.join(dead)} past"]
    return "\n".join(lines) + "\n"


def to_dot(drawn: Graph) -> str:
    """A directed graph for Graphviz."""
    lines = ["digraph history {", "  node [shape=box, fontname=monospace];"]
    for node in drawn["nodes"]:
        style = "" if node["live"] else ", style=dashed"
        lines.append(f"  s{node['id']} [label={_quoted(_title(node))}{style}];")
    for edge in drawn["edges"]:
        style = {"parent": "style=dotted, arrowhead=none", "unknown": "style=dashed"}.get(edge["kind"], "")
        label = f"label={_quoted(_symbols(edge))}" if edge["symbols"] else ""
        lines.append(f"  s{edge['source']} -> s{edge['target']} [{', '.join(filter(None, (label, style)))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _title(node: Node) -> str:
    who = f" ({node['author']})" if node["author"] else ""
    failed = "" if node["status"] == "ok" else f" [{node['status']}]"
    return f"{node['id']}: {node['label']}{who}{failed}" if node["id"] else node["label"]


def _symbols(edge: Edge) -> str:
    text = ", ".join(edge["symbols"])
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _mermaid_text(text: str) -> str:
    """Characters that mean something to Mermaid, or to the page that it is drawn on, by their numbers."""
    return "".join(each if each.isalnum() or each in " _.,:=()+-*/…" else f"#{ord(each)};" for each in text)


def _quoted(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


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


_FIELDS: Final = tuple(name for name in vars(Step) if isinstance(getattr(Step, name), property))

FORMATS: Final = (".ipynb", ".json", ".mmd", ".dot")


def exported(past: HistoryIndex, suffix: str) -> str:
    """The text of a file with this suffix: the notebook of the line to the head; all lines in the other formats.

    Raises UsageError for a suffix that is none of FORMATS.
    """
    match suffix:
        case ".ipynb":
            steps = [Step(record) for record in past.line(past.head) if record.stays]
            made = notebook(steps, past.begun)
            if used := _environments(past):
                made["metadata"]["cenote"] = {"environments": used}
            return _json(made)
        case ".json":
            steps = [Step(record) for record in past.all()]
            told = {"head": past.head, "steps": [as_data(step) for step in steps], "graph": graph(past)}
            if used := _environments(past):
                told["environments"] = used
            return _json(told)
        case ".mmd":
            return to_mermaid(graph(past))
        case ".dot":
            return to_dot(graph(past))
    raise UsageError(f"{suffix or 'no suffix'!r} is none of {', '.join(FORMATS)}")


def _environments(past: HistoryIndex) -> list[Json]:
    """The packages of steps, each for those after its `after`; none where they had those of the process."""
    return [{**asdict(used), "packages": list(used.packages)} for used in past.history.environments]


def export(past: HistoryIndex, path: str | Path) -> Path:
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
