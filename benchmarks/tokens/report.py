"""A comparison as text for people and as plain data for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.tokens.account import Cost
from benchmarks.tokens.comparison import Comparison

NAME_WIDTH = 20
CELL_WIDTH = 17
REFERENCE = "cenote"
FIGURES = ("calls", "prompt", "cacheable", "completion", "total", "cost")


def render_text(comparison: Comparison, tokenizer: str) -> str:
    """Totals per style, then the total of each conversation, with ratios to Cenote."""
    titles = [f"{style.name:<{NAME_WIDTH}}{style.title}" for style in comparison.styles]
    return "\n\n".join(["\n".join(titles), _totals(comparison, tokenizer), _matrix(comparison)]) + "\n"


def _totals(comparison: Comparison, tokenizer: str) -> str:
    head = " " * NAME_WIDTH + "".join(f"{figure:>{CELL_WIDTH}}" for figure in FIGURES)
    lines = [_row(style.name, comparison) for style in comparison.styles]
    title = f"tokens of {len(comparison.conversations)} conversations ({tokenizer})"
    return "\n".join([title, head, *lines])


def _row(style: str, comparison: Comparison) -> str:
    cost, reference = comparison.total(style), comparison.total(REFERENCE)
    pairs = zip(_figures(cost), _figures(reference), strict=True)
    cells = [f"{value:,.0f} {value / base:5.2f}x" for value, base in pairs]
    return f"{style:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _figures(cost: Cost) -> tuple[float, ...]:
    return (cost.calls, cost.prompt, cost.cacheable, cost.completion, cost.total, cost.price)


def _matrix(comparison: Comparison) -> str:
    names = [style.name for style in comparison.styles]
    lines = ["total tokens by conversation", " " * NAME_WIDTH + "".join(f"{n:>{CELL_WIDTH}}" for n in names)]
    for conversation in comparison.conversations:
        totals = [comparison.costs[conversation, name].total for name in names]
        base = comparison.costs[conversation, REFERENCE].total
        cells = [f"{total:,} {total / base:5.2f}x" for total in totals]
        lines.append(f"{conversation:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells))
    return "\n".join(lines)


def render_data(comparison: Comparison, tokenizer: str) -> dict[str, Any]:  # Any: JSON
    """The same as plain data."""
    return {
        "tokenizer": tokenizer,
        "styles": {style.name: style.title for style in comparison.styles},
        "totals": {style.name: _plain(comparison.total(style.name)) for style in comparison.styles},
        "conversations": [
            {"conversation": name, "style": style.name, **_plain(comparison.costs[name, style.name])}
            for name in comparison.conversations
            for style in comparison.styles
        ],
    }


def _plain(cost: Cost) -> dict[str, float]:
    return {**asdict(cost), "total": cost.total, "cost": round(cost.price)}
