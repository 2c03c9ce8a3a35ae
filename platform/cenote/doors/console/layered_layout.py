"""A layered drawing of an acyclic graph: boxes in rows, each below all that lead to it. Pure.

The rows are those of Coffman and Graham, with a bound on the boxes of one. Boxes are ordered by the mean place of
their neighbours, as Sugiyama, Tagawa and Toda do, and moved towards them as far as the order allows, which is an
isotonic regression. An edge that passes rows has a bend in each; edges with one source and kind share their bends.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

SWEEPS: Final = 4
"""Passes down and up. More change little."""

GAP_X: Final = 24.0
GAP_Y: Final = 36.0
BEND: Final = 6.0
"""Pixels between boxes, between rows, and for an edge that passes a row."""


@dataclass(frozen=True, slots=True)
class Box:
    """Of one node, in pixels. x, y: of its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A part of one or more edges. path: as an SVG path has it. arrow: whether it ends at a box."""

    kind: str
    path: str
    arrow: bool


@dataclass(frozen=True, slots=True)
class Drawing(Generic[Key]):
    """width, height: in pixels."""

    width: float
    height: float
    boxes: Mapping[Key, Box]
    edges: tuple[DrawnEdge, ...]


_Place = tuple[int, str, int]
"""Of a node: its index, "" and its row. Of a bend: the index of its edges' source, their kind, its row."""

_Part = tuple[_Place, _Place, str]
"""Of edges of a kind, from a row to the next."""


def layered(
    sizes: Mapping[Key, tuple[float, float]], edges: Sequence[tuple[Key, Key, str]], widest: int = 8
) -> Drawing[Key]:
    """Draws nodes of these widths and heights, and edges by source, target and kind, which is some text.

    sizes: sources before their targets. widest: nodes of one row. Raises ValueError for an edge that leads back,
    KeyError for an unknown node.
    """
    indices = {key: index for index, key in enumerate(sizes)}
    ends = [(indices[source], indices[target], kind) for source, target, kind in edges]
    rows = _rows(len(indices), ends, widest)
    if not rows:
        return Drawing(0.0, 0.0, {}, ())
    nodes = [(index, "", row) for index, row in enumerate(rows)]
    parts = _parts(nodes, ends)
    bends = {place: None for part in parts for place in part[:2] if place[1]}
    layers: list[list[_Place]] = [[] for _ in range(1 + max(rows))]
    for place in sorted([*nodes, *bends]):
        layers[place[2]].append(place)
    above, below = _neighbours(parts)
    _order(layers, above, below)

    boxes = dict(zip(nodes, sizes.values(), strict=True))
    extents = {place: boxes.get(place, (BEND, 0.0)) for layer in layers for place in layer}
    centres = _centres(layers, extents, above, below)
    left = min(centre - extents[place][0] / 2 for place, centre in centres.items())
    right = max(centre + extents[place][0] / 2 for place, centre in centres.items())
    heights = [max(extents[place][1] for place in layer) for layer in layers]
    tops = [sum(heights[:row]) + GAP_Y * row for row in range(len(layers))]

    def end(place: _Place) -> tuple[float, float, float]:
        """x, and y of its upper and its lower end."""
        top = tops[place[2]]
        return centres[place] - left, top, top + (heights[place[2]] if place[1] else extents[place][1])

    return Drawing(
        width=right - left,
        height=tops[-1] + heights[-1],
        boxes={
            key: Box(centres[place] - left - sizes[key][0] / 2, tops[place[2]], *sizes[key])
            for key, place in zip(sizes, nodes, strict=True)
        },
        edges=tuple(
            _edge(end(source), end(target), kind, passes=bool(target[1])) for source, target, kind in parts
        ),
    )


def _rows(count: int, edges: Sequence[tuple[int, int, str]], widest: int) -> list[int]:
    """Of each node, its row."""
    sources: list[list[int]] = [[] for _ in range(count)]
    for source, target, _ in edges:
        if source >= target:
            raise ValueError(f"an edge leads from node {source} back to {target}")
        sources[target].append(source)
    rows, taken = list[int](), list[int]()
    for above in sources:
        row = 1 + max((rows[source] for source in above), default=-1)
        while row < len(taken) and taken[row] >= widest:
            row += 1
        taken += [0] * (row + 1 - len(taken))
        taken[row] += 1
        rows.append(row)
    return rows


def _parts(nodes: Sequence[_Place], edges: Sequence[tuple[int, int, str]]) -> list[_Part]:
    """Each once."""
    found: dict[_Part, None] = {}
    for source, target, kind in edges:
        at = nodes[source]
        for row in range(nodes[source][2] + 1, nodes[target][2]):
            bend = (source, kind, row)
            found[at, bend, kind] = None
            at = bend
        found[at, nodes[target], kind] = None
    return list(found)


_Neighbours = dict[_Place, list[_Place]]


def _neighbours(parts: Sequence[_Part]) -> tuple[_Neighbours, _Neighbours]:
    above: _Neighbours = {}
    below: _Neighbours = {}
    for source, target, _ in parts:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    return above, below


def _order(layers: list[list[_Place]], above: _Neighbours, below: _Neighbours) -> None:
    for _ in range(SWEEPS):
        for neighbours, following in ((above, layers), (below, layers[::-1])):
            where: dict[_Place, float] = {}
            for layer in following:
                means = {
                    place: sum(where[each] for each in near) / len(near)
                    for place in layer
                    if (near := neighbours.get(place))
                }
                own = {place: index / len(layer) for index, place in enumerate(layer)}
                layer.sort(key=lambda place: means.get(place, own[place]))
                where |= {place: index / len(layer) for index, place in enumerate(layer)}


def _centres(
    layers: Sequence[Sequence[_Place]],
    extents: Mapping[_Place, tuple[float, float]],
    above: _Neighbours,
    below: _Neighbours,
) -> dict[_Place, float]:
    centres: dict[_Place, float] = {}
    for layer in layers:
        centres |= zip(layer, _apart(layer, extents), strict=True)
    for _ in range(SWEEPS):
        for neighbours, following in ((above, layers), (below, layers[::-1])):
            for layer in following:
                wanted = [
                    sum(centres[each] for each in near) / len(near)
                    if (near := neighbours.get(place))
                    else centres[place]
                    for place in layer
                ]
                apart = _apart(layer, extents)
                moved = isotonic([want - least for want, least in zip(wanted, apart, strict=True)])
                centres |= {
                    place: base + least for place, base, least in zip(layer, moved, apart, strict=True)
                }
    return centres


def _apart(layer: Sequence[_Place], extents: Mapping[_Place, tuple[float, float]]) -> list[float]:
    """Centres of a row that begins at 0, as close as they may be."""
    found, edge, bend = list[float](), 0.0, True
    for place in layer:
        edge += 0.0 if not found else BEND if bend and place[1] else GAP_X
        bend = bool(place[1])
        found.append(edge + extents[place][0] / 2)
        edge += extents[place][0]
    return found


def isotonic(values: Sequence[float]) -> list[float]:
    """The sequence that never falls and is nearest to these in the sum of squares: pools adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            more, many = pools.pop()
            total, count = total + more, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def _edge(
    source: tuple[float, float, float], target: tuple[float, float, float], kind: str, *, passes: bool
) -> DrawnEdge:
    """passes: the target is a bend, through which the edge goes straight."""
    (x, _, begin), (to, end, through) = source, target
    middle = (begin + end) / 2
    path = f"M{x:.0f} {begin:.0f}C{x:.0f} {middle:.0f} {to:.0f} {middle:.0f} {to:.0f} {end:.0f}"
    return DrawnEdge(kind, f"{path}V{through:.0f}" if passes else path, not passes)
