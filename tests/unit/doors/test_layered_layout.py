"""The layered drawing of a graph: rows, order, places, edges."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.doors.console.layered_layout import GAP_X, GAP_Y, Box, isotonic, layered

SIZE = (100.0, 40.0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, tuple[float, float]], list[tuple[int, int, str]]]:
    count = draw(st.integers(0, 25))
    side = st.integers(1, 200).map(float)
    sizes = {index: (draw(side), draw(side)) for index in range(count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)) if count else st.nothing()
    edges = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=50 if count > 1 else 0))
    return sizes, [(source, target, draw(st.sampled_from(("data", "doubt")))) for source, target in edges]


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


@given(graphs(), st.integers(1, 8))
def test_boxes_lie_apart_below_their_sources(
    graph: tuple[dict[int, tuple[float, float]], list[tuple[int, int, str]]], widest: int
) -> None:
    """In the drawing, with their sizes; no row has more than it may."""
    sizes, edges = graph
    drawing = layered(sizes, edges, widest)
    assert sizes == {key: (box.width, box.height) for key, box in drawing.boxes.items()}
    for one, other in itertools.combinations(drawing.boxes.values(), 2):
        assert not overlap(one, other)
    for source, target, _ in edges:
        upper, lower = drawing.boxes[source], drawing.boxes[target]
        assert lower.y >= upper.y + upper.height + GAP_Y
    rows = [box.y for box in drawing.boxes.values()]
    assert max(map(rows.count, rows), default=0) <= widest
    for box in drawing.boxes.values():
        assert -0.01 <= box.x <= drawing.width - box.width + 0.01
        assert 0 <= box.y <= drawing.height - box.height + 0.01


@given(graphs())
def test_edges_lead_from_their_source_to_their_target(
    graph: tuple[dict[int, tuple[float, float]], list[tuple[int, int, str]]],
) -> None:
    """Each as a chain of parts that begins below its source and ends, with an arrow, on top of its target."""
    sizes, edges = graph
    drawing = layered(sizes, edges)
    parts = [
        (edge.kind, *(tuple(map(int, re.findall(r"-?\d+", edge.path)))), edge.arrow) for edge in drawing.edges
    ]
    begins = {(part[0], part[1], part[2]) for part in parts}
    ends = {(part[0], *part[7:9]) for part in parts if part[-1]}
    for source, target, kind in edges:
        upper, lower = drawing.boxes[source], drawing.boxes[target]
        middle = f"{upper.x + upper.width / 2:.0f}", f"{upper.y + upper.height:.0f}"
        assert (kind, *map(int, middle)) in begins
        middle = f"{lower.x + lower.width / 2:.0f}", f"{lower.y:.0f}"
        assert (kind, *map(int, middle)) in ends


def test_neighbours_stand_below_each_other() -> None:
    """Two chains do not cross, in whatever order their nodes come."""
    edges = [(0, 3, "data"), (1, 2, "data"), (2, 5, "data"), (3, 4, "data")]
    boxes = layered(dict.fromkeys(range(6), SIZE), edges).boxes
    assert boxes[0].x == boxes[3].x == boxes[4].x
    assert boxes[1].x == boxes[2].x == boxes[5].x
    assert SIZE[0] + GAP_X == abs(boxes[0].x - boxes[1].x)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="back"):
        layered(dict.fromkeys(range(2), SIZE), [(1, 0, "data")])
    with pytest.raises(ValueError, match="back"):
        layered(dict.fromkeys(range(2), SIZE), [(1, 1, "data")])


@given(st.lists(st.floats(-1000, 1000), max_size=30))
def test_isotonic_never_falls_and_moves_as_little_as_it_can(values: list[float]) -> None:
    """Of the sums of squares, none of a neighbouring solution is less."""
    found = isotonic(values)
    assert len(found) == len(values)
    assert all(one <= other + 1e-9 for one, other in itertools.pairwise(found))
    assert isotonic(found) == pytest.approx(found)
    assert sum(found) == pytest.approx(sum(values), abs=1e-6)
    rising = sorted(values)
    cost = sum((one - other) ** 2 for one, other in zip(values, found, strict=True))
    assert cost <= sum((one - other) ** 2 for one, other in zip(values, rising, strict=True)) + 1e-6
