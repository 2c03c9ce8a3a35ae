"""A comparison as text for people and as plain data for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.tokens.account import Cost
from benchmarks.tokens.comparison import Comparison

NAME_WIDTH = 20
CELL_WIDTH = 17
OURS = "cenote"
REFERENCE = "json"
"""One call a turn: the reference of the others."""
RIVAL = "json lean"

Figure = Callable[[Cost], float]
FIGURES: dict[str, Figure] = {
    "calls": lambda cost: cost.calls,
    "prompt": lambda cost: cost.prompt,
    "cacheable": lambda cost: cost.cacheable,
    "completion": lambda cost: cost.completion,
    "total": lambda cost: cost.total,
    "price uncached": lambda cost: cost.uncached_price,
    "price cached": lambda cost: cost.price,
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A share that must be below a bound."""

    text: str
    found: float
    below: float

    def __str__(self) -> str:
        verdict = "reached" if self.found < self.below else "missed"
        return f"{verdict:<8} {self.text}: {100 * self.found:.1f} %"


def render_text(comparison: Comparison, tokenizer: str) -> str:
    """Totals per style, then the total of each conversation, with the difference from JSON calls one a turn."""
    titles = "\n".join(f"{style.name:<{NAME_WIDTH}}{style.title}" for style in comparison.styles)
    goals = "\n".join(["goals", *map(str, goals_of(comparison))])
    parts = [titles, _totals(comparison, tokenizer), _facts(comparison), _matrix(comparison), goals]
    return "\n\n".join(parts) + "\n"


def goals_of(comparison: Comparison) -> list[Goal]:
    ours = comparison.total(OURS).total
    return [
        Goal(
            text="at most 35 % of the tokens of one JSON call a turn",
            found=ours / comparison.total(REFERENCE).total,
            below=0.35,
        ),
        Goal(
            text="at most 75 % of those of lean JSON in parallel",
            found=ours / comparison.total(RIVAL).total,
            below=0.75,
        ),
        Goal(
            text="fewer than 0.5 % of facts are missing",
            found=comparison.stated(OURS).share_missing,
            below=0.005,
        ),
    ]


def _totals(comparison: Comparison, tokenizer: str) -> str:
    title = f"tokens of {len(comparison.conversations)} conversations ({tokenizer})"
    rows = [
        _row(
            style.name,
            [figure(comparison.total(style.name)) for figure in FIGURES.values()],
            [figure(comparison.total(REFERENCE)) for figure in FIGURES.values()],
        )
        for style in comparison.styles
    ]
    return "\n".join([title, _row("", list(FIGURES)), *rows])


def _facts(comparison: Comparison) -> str:
    lines = [
        "facts that a model states: values that tools returned",
        _row("", ["stated", "not seen", "share"]),
    ]
    for style in comparison.styles:
        found = comparison.stated(style.name)
        share = f"{100 * found.share_missing:.1f} %"
        lines.append(_row(style.name, [str(found.stated), str(len(found.missing)), share]))
    unseen = comparison.stated(OURS).missing
    return "\n".join([*lines, *([f"  {OURS}: {', '.join(unseen)}"] if unseen else [])])


def _matrix(comparison: Comparison) -> str:
    names = [style.name for style in comparison.styles]
    rows = [
        _row(
            conversation,
            [comparison.costs[conversation, name].total for name in names],
            [comparison.costs[conversation, REFERENCE].total] * len(names),
        )
        for conversation in comparison.conversations
    ]
    return "\n".join(["total tokens by conversation", _row("", names), *rows])


def _row(name: str, values: Sequence[str | float], bases: Sequence[float] = ()) -> str:
    """bases: the numbers that each is compared with."""
    cells = values if not bases else [_cell(float(v), base) for v, base in zip(values, bases, strict=True)]
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _cell(value: float, base: float) -> str:
    return f"{value:,.0f}" if value == base else f"{value:,.0f} {100 * (value / base - 1):+6.1f}%"


def render_data(comparison: Comparison, tokenizer: str) -> dict[str, Any]:  # Any: JSON
    """The same as plain data."""
    return {
        "tokenizer": tokenizer,
        "styles": {style.name: style.title for style in comparison.styles},
        "totals": {style.name: _plain(comparison.total(style.name)) for style in comparison.styles},
        "facts": {style.name: asdict(comparison.stated(style.name)) for style in comparison.styles},
        "conversations": [
            {"conversation": name, "style": style.name, **_plain(comparison.costs[name, style.name])}
            for name in comparison.conversations
            for style in comparison.styles
        ],
    }


def _plain(cost: Cost) -> dict[str, float]:
    return {
        **asdict(cost),
        "total": cost.total,
        "uncached": round(cost.uncached_price),
        "cost": round(cost.price),
    }
