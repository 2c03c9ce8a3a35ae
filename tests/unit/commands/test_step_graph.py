"""The picture of a graph of steps in a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cenote.harness.export import Edge, Graph, Node
from cenote.terminal.step_graph import BOX, MOST_RAILS, PLAIN, step_lines


def node(number: int, label: str = "", status: str = "ok", live: bool = True) -> Node:
    return {
        "id": number,
        "kind": "cell",
        "label": label or f"cell {number}",
        "author": "",
        "cause": "",
        "status": status,
        "origin": 0,
        "writes": [],
        "started": 0.0,
        "duration": 0.0,
        "unknown": [],
        "live": live,
    }


def edge(source: int, target: int, *symbols: str, kind: str = "data") -> Edge:
    return {"source": source, "target": target, "kind": kind, "symbols": list(symbols)}


def drawn(graph: Graph, width: int = 100, strokes: str = BOX) -> list[str]:
    return [line.text.rstrip() for line in step_lines(graph, width, strokes)]


GRAPH: Graph = {
    "head": 4,
    "nodes": [node(1, "a = 1"), node(2, "b = 2"), node(3, "c = a + b"), node(4, "a, c")],
    "edges": [
        *(edge(number - 1, number, kind="parent") for number in range(1, 5)),
        edge(1, 3, "a"),
        edge(2, 3, "b"),
        edge(1, 4, "a"),
        edge(3, 4, "c"),
    ],
}


def test_rails_lead_from_a_step_to_those_that_took_from_it() -> None:
    assert [
        "[1]─┐   a = 1",
        "[2]─│┐  b = 2",
        "[3]─┼┴┐ c = a + b  <- a; b",
        "[4]─┴─┘ a, c  <- a; c",
    ] == drawn(GRAPH)


def test_in_ascii() -> None:
    assert [
        "[1]-.   a = 1",
        "[2]-|.  b = 2",
        "[3]-+'. c = a + b  <- a; b",
        "[4]-'-' a, c  <- a; c",
    ] == drawn(GRAPH, strokes=PLAIN)
    assert all(line.isascii() for line in drawn(GRAPH, strokes=PLAIN))


def test_what_is_not_drawn_is_said() -> None:
    """Sources before the first row, the start, and an edge that is not certain."""
    graph: Graph = {
        "head": 9,
        "nodes": [node(8), node(9)],
        "edges": [edge(3, 8, "x", "y"), edge(0, 9, "z"), edge(8, 9, kind="unknown")],
    }
    assert ["[8]─┐ cell 8  <- x, y of 3", "[9]─┘ cell 9  <- z of the start; perhaps anything"] == drawn(graph)


def test_more_rails_than_there_is_room_for() -> None:
    many = MOST_RAILS + 3
    graph: Graph = {
        "head": many + 1,
        "nodes": [node(number) for number in range(1, many + 2)],
        "edges": [edge(number, many + 1, f"v{number}") for number in range(1, many + 1)],
    }
    lines = drawn(graph, width=500)
    assert f"v{many} of {many}" in lines[-1] or "…" in lines[-1]
    assert f"[ {1}]─┐" == lines[0][:6]
    assert MOST_RAILS == sum(lines[-1].count(stroke) for stroke in "┴┘")


def test_hostile_labels_stay_on_their_line() -> None:
    graph: Graph = {
        "head": 1,
        "nodes": [node(1, "\x1b[31mred\nblue\u202e")],
        "edges": [edge(0, 1, "\x1b]0;t")],
    }
    (line,) = drawn(graph)
    assert line.isprintable()


edges = st.integers(0, 29).flatmap(
    lambda source: st.tuples(
        st.just(source), st.integers(source + 1, 30), st.sampled_from(("data", "unknown"))
    )
)


@given(st.lists(edges, max_size=60), st.integers(20, 120))
def test_any_graph_fits_its_width(found: list[tuple[int, int, str]], width: int) -> None:
    """Every row has its step; no rail is open at the end."""
    graph: Graph = {
        "head": 30,
        "nodes": [node(number) for number in range(1, 31)],
        "edges": [edge(source, target, "s", kind=kind) for source, target, kind in found],
    }
    lines = step_lines(graph, width)
    assert 30 == len(lines)
    assert all(len(line.text) <= width for line in lines)
    assert not {*"│┐┤┬┼"} & {*lines[-1].text}
