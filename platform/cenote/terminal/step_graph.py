"""A picture of steps and what they took from each other, in lines of text, as of `git log --graph`. Pure.

Each step is a box with its number. A rail begins at a step that later ones take something from, runs down to the last
of them, and is joined where one takes. A rail that only crosses a row is drawn over the line of that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.harness.export import Edge, Graph, Node

MOST_RAILS: Final = 12
"""What there is no rail for is said in words."""

MOST_TAKEN: Final = 60
"""Characters that say what a step took."""

BOX, PLAIN = "─│┐┘┤┬┴┼", "-|.'|.'+"
"""A line, a rail; a rail that begins, ends and is joined at the end of a line; the same within a line."""


@dataclass(frozen=True, slots=True)
class StepLine:
    """One row of the picture. status: of its step. live: whether that is on the line to the head."""

    text: str
    status: str
    live: bool


def step_lines(graph: Graph, width: int, strokes: str = BOX) -> list[StepLine]:
    """The steps in their order. width: characters of a line at the most. strokes: BOX, or PLAIN for ASCII."""
    nodes = sorted(graph["nodes"], key=lambda node: node["id"])
    shown = {node["id"] for node in nodes}
    taken: dict[int, list[Edge]] = {number: [] for number in shown}
    last: dict[int, int] = {}
    """By source, the last step that takes from it."""
    for edge in graph["edges"]:
        if edge["kind"] != "parent" and edge["target"] in shown:
            taken[edge["target"]].append(edge)
            if edge["source"] in shown:
                last[edge["source"]] = max(last.get(edge["source"], 0), edge["target"])
    rows = _rows(nodes, taken, last, strokes)
    wide = max((len(rails) for rails, _ in rows), default=0)
    digits = len(str(max(shown, default=0)))
    return [
        StepLine(
            _cut(f"[{node['id']:>{digits}}]{rails:<{wide}} {printable(node['label'])}{words}", width),
            node["status"],
            node["live"],
        )
        for node, (rails, words) in zip(nodes, rows, strict=True)
    ]


def _rows(
    nodes: Sequence[Node], taken: dict[int, list[Edge]], last: dict[int, int], strokes: str
) -> list[tuple[str, str]]:
    """The rails of each row, and what its step took."""
    rails: list[int | None] = []
    """The source of each; None for a free one."""
    rows = list[tuple[str, str]]()
    for node in nodes:
        number = node["id"]
        sources = {edge["source"] for edge in taken[number]}
        joined = {place for place, source in enumerate(rails) if source in sources}
        before = list(rails)
        began = _begin(rails, number) if number in last else None
        ending = {place for place in joined if last[before[place] or 0] == number}
        drawn = {source for source in before if source is not None}
        rows.append((_row(before, joined, ending, began, strokes), _words(taken[number], drawn)))
        for place, source in enumerate(rails):
            if source is not None and last[source] <= number:
                rails[place] = None
    return rows


def _begin(rails: list[int | None], number: int) -> int | None:
    """Takes the first free rail; None where there is none."""
    place = next((place for place, source in enumerate(rails) if source is None), len(rails))
    if place == MOST_RAILS:
        return None
    rails[place:] = [number, *rails[place + 1 :]]
    return place


def _row(
    rails: Sequence[int | None], joined: set[int], ending: set[int], began: int | None, strokes: str
) -> str:
    line, rail, ends, within = strokes[0], strokes[1], strokes[2:5], strokes[5:]
    right = max((*joined, -1 if began is None else began), default=-1)
    drawn = line if right >= 0 else " "
    for place in range(max(len(rails), right + 1)):
        if place in joined or place == began:
            kind = 0 if place == began else 1 if place in ending else 2
            drawn += (within if place < right else ends)[kind]
        elif place < len(rails) and rails[place] is not None:
            drawn += rail
        else:
            drawn += line if place < right else " "
    return drawn


def _words(taken: Sequence[Edge], drawn: set[int]) -> str:
    """drawn: the sources that rails lead from."""
    parts = list[str]()
    for edge in sorted(taken, key=lambda edge: edge["source"]):
        symbols = ", ".join(printable(symbol) for symbol in edge["symbols"][:8]) or "perhaps anything"
        source = f" of {edge['source'] or 'the start'}" if edge["source"] not in drawn else ""
        parts.append(f"{symbols}{source}")
    return f"  <- {_cut('; '.join(parts), MOST_TAKEN)}" if parts else ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"
