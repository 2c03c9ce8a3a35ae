"""A history as nodes and edges: plain data, and text that other programs draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypedDict

from cenote.harness.past import Past
from cenote_worker.history.collecting import no_collections
from cenote_worker.history.dependencies import Inputs, written
from cenote_worker.history.history import History
from cenote_worker.history.step import START, StepRecord

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


def graph(past: Past) -> Graph:
    """All lines of a history."""
    live = {record.number for record in past.line(past.head)}
    records, shown = past.all(), past.history.beside(ShownSteps)
    nodes, edges = [_start(past)], list[Edge]()
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


class ShownSteps:
    """Kept beside their history: what is asked for again and again are mostly the same ones."""

    def __init__(self) -> None:
        self._by_number: dict[int, _ShownStep] = {}

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        """See Companion."""
        for record in records:
            self.get(history, record)

    def get(self, history: History, record: StepRecord) -> _ShownStep:
        found = self._by_number.get(record.number)
        if found is None:
            inputs = history.dependencies.inputs(record.number)
            found = self._by_number[record.number] = _shown(record, inputs)
        return found


class _ShownStep(NamedTuple):
    """What has to be worked out of a step, and stays. node: to be copied. edges: source, kind, symbols."""

    node: Node
    edges: tuple[tuple[int, str, tuple[str, ...]], ...]


def _start(past: Past) -> Node:
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
