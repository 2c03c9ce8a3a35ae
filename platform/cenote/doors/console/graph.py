"""Pages of dependencies: a drawing of steps and the values between them, and where a value came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from cenote.doors.console.layered_layout import Box, Drawing, layered
from cenote.doors.console.session import MOST_LABEL, PageRoute, Visit, address, page_number, value_address
from cenote.doors.console.steps import marked
from cenote.harness.export import Edge, Graph
from cenote.harness.questions.execution_state import ExecutionState
from cenote_security.printable import printable
from cenote_worker.history.step import START

STEPS_OF_A_GRAPH: Final = 30

MOST_NEAR: Final = 40
"""Steps of the neighbourhood of one."""

MOST_NAMES: Final = 3
"""Names in one box of values. Others are on the page of the step that wrote them."""

MOST_LISTED: Final = 200
"""Steps and statements listed on the page of a value."""

_LABEL: Final = 26
"""Characters of one line in a box."""

_WIDTH, _LINE, _PADDING = 204.0, 18.0, 8.0
"""Pixels."""

BoxKey = tuple[int, tuple[str, ...]]
"""A step; or values that it has written, which the same steps take."""


@dataclass(frozen=True, slots=True)
class BoxLine:
    """One line of a box. title: the same, less shortened. url: empty for none."""

    text: str
    title: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class ShownBox:
    """kind: `step`, `outside` for one that is not among those on the page, or `values`. state: the step's status."""

    kind: str
    state: str
    box: Box
    lines: tuple[BoxLine, ...]


async def _dependencies(visit: Visit) -> Response:
    """A page of steps, or those near one."""
    state = await visit.state()
    query = visit.request.query_params
    return await asyncio.to_thread(
        _drawn_page, visit, state, page_number(query.get("before", "")), page_number(query.get("step", ""))
    )


def _drawn_page(visit: Visit, state: ExecutionState, before: int | None, centre: int | None) -> Response:
    steps = state.history
    count = len(steps)
    end = count if before is None else min(before, count)
    begin = max(0, end - STEPS_OF_A_GRAPH)
    numbers = [step.number for step in steps[begin:end]] if centre is None else near(state, centre)
    found = state.graph(numbers)
    drawing, boxes, alone = drawn(visit.name, found)
    about = f", around step {centre}" if centre is not None else ""
    return visit.page(
        "graph",
        title=f"{visit.name}, dependencies{about}",
        name=visit.name,
        drawing=drawing,
        boxes=boxes,
        alone=alone,
        edges=[each for each in found["edges"] if each["kind"] != "parent"][:MOST_LISTED],
        centre=centre,
        earlier=begin if centre is None else 0,
        later=min(end + STEPS_OF_A_GRAPH, count) if centre is None and end < count else None,
        shown=len(numbers),
        count=count,
    )


def near(state: ExecutionState, centre: int) -> list[int]:
    """A step, and the nearest ones that it depends on or that depend on it, in their order.

    Raises UnknownEntryError.
    """
    state.step(centre)
    found, edge = {centre}, [centre]
    while edge and len(found) < MOST_NEAR:
        sources = [each["source"] for each in state.graph(edge)["edges"] if each["kind"] != "parent"]
        nearer = dict.fromkeys(
            [*sources, *(taker for each in edge for taker in state.takers(each)[:MOST_NEAR])]
        )
        edge = [number for number in nearer if number not in found | {START}][: MOST_NEAR - len(found)]
        found |= set(edge)
    return [step.number for step in state.history if step.number in found]


def drawn(name: str, graph: Graph) -> tuple[Drawing[BoxKey], list[ShownBox], list[int]]:
    """The drawing of the graph's steps, the boxes in it, and the steps that have no edge to be drawn. Pure.

    Edges to steps outside the graph are left out; steps outside that something was taken from are small boxes.
    """
    inside = {node["id"]: node for node in graph["nodes"]}
    edges = [each for each in graph["edges"] if each["kind"] != "parent" and each["target"] in inside]
    values, parts = _values(edges)
    linked = {key[0] for key in values} | {
        number for each in edges for number in (each["source"], each["target"])
    }
    order = {number: place for place, number in enumerate(inside)}
    steps: list[BoxKey] = [(number, ()) for number in linked]
    keys = sorted([*steps, *values], key=lambda key: (order.get(key[0], -1), key))
    sizes = {key: (_WIDTH, _PADDING + _LINE * _lines_of(key, outside=key[0] not in inside)) for key in keys}
    drawing = layered(sizes, parts)
    boxes = [_box(name, key, graph, inside, drawing.boxes[key]) for key in keys]
    return drawing, boxes, [number for number in inside if number not in linked]


def _values(edges: Iterable[Edge]) -> tuple[list[BoxKey], list[tuple[BoxKey, BoxKey, str]]]:
    """Boxes of values, and all edges of the drawing."""
    targets: dict[tuple[int, str], list[int]] = {}
    parts: dict[tuple[BoxKey, BoxKey, str], None] = {}
    for edge in edges:
        for symbol in edge["symbols"]:
            targets.setdefault((edge["source"], symbol), []).append(edge["target"])
        if not edge["symbols"]:
            parts[(edge["source"], ()), (edge["target"], ()), "doubt"] = None
    together: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for (source, symbol), taken in targets.items():
        together.setdefault((source, tuple(taken)), []).append(symbol)
    values = list[BoxKey]()
    for (source, takers), symbols in together.items():
        key = source, tuple(symbols)
        values.append(key)
        parts[(source, ()), key, "data"] = None
        parts |= {(key, (target, ()), "data"): None for target in takers}
    return values, list(parts)


def _lines_of(key: BoxKey, *, outside: bool) -> int:
    if not key[1]:
        return 1 if outside else 2
    return min(len(key[1]), MOST_NAMES + 1)


def _box(name: str, key: BoxKey, graph: Graph, inside: Mapping[int, object], box: Box) -> ShownBox:
    number, symbols = key
    step_url = address(name, number) if number != START else ""
    if symbols:
        lines = [_line(symbol, value_address(name, number, symbol)) for symbol in symbols[:MOST_NAMES]]
        if len(symbols) > MOST_NAMES:
            lines.append(BoxLine(f"and {len(symbols) - MOST_NAMES} more", "", step_url))
        return ShownBox("values", "", box, tuple(lines))
    title = f"step {number}" if number != START else "the start"
    if number not in inside:
        return ShownBox("outside", "", box, (BoxLine(title, "", step_url),))
    node = next(each for each in graph["nodes"] if each["id"] == number)
    state = node["status"] if node["live"] else "left"
    about = f"{title}, {node['author']}" if node["author"] else title
    return ShownBox("step", state, box, (_line(about, step_url), _line(node["label"], "")))


def _line(text: str, url: str) -> BoxLine:
    whole = printable(text[:MOST_LABEL])
    return BoxLine(whole if len(whole) <= _LABEL else f"{whole[: _LABEL - 1]}…", whole, url)


async def _value(visit: Visit) -> Response:
    """What made a value: the step that wrote it, the program that gives it again, and what depends on it."""
    state, number = await visit.state(), visit.request.path_params["step"]
    return await asyncio.to_thread(
        _value_page, visit, state, number, visit.request.query_params.get("name", "")
    )


def _value_page(visit: Visit, state: ExecutionState, number: int, symbol: str) -> Response:
    found = state.blame(symbol, number)
    origin = state.slice(symbol, number)
    dependents = state.dependents(symbol, number)
    live = {one.name: one for one in state.at(number).variables}
    return visit.page(
        "value",
        title=f"{visit.name}, {symbol[:MOST_LABEL]} after step {number}",
        name=visit.name,
        symbol=symbol,
        number=number,
        blame=found,
        code=marked(found.step.code, found.span) if found.step is not None else ("", "", ""),
        origin=origin,
        dependents=dependents,
        variable=live.get(symbol),
        most=MOST_LISTED,
    )


ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/runtimes/{runtime}/dependencies", _dependencies),
    ("GET", "/runtimes/{runtime}/steps/{step:int}/value", _value),
)
