"""The tables at the end: what each agent cost, and what went past the prompts from jail to jail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote.models.usage import TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """One agent. seconds: wall time of its runs; prompt_bytes: UTF-8 of all that was sent to its model."""

    name: str
    calls: int
    usage: TokenUsage
    prompt_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A value that went from one namespace into another, and through no prompt."""

    what: str
    source: str
    target: str
    size: int


HEADER = ("agent", "model calls", "prompt tokens", "cached", "completion", "prompt bytes", "seconds")


def cost_table(rows: Sequence[AgentRow]) -> list[str]:
    """The lines of the table of costs, with a total of what can be added up."""
    body = [_cells(row) for row in rows]
    total = AgentRow(
        name="together",
        calls=sum(row.calls for row in rows),
        usage=sum((row.usage for row in rows), TokenUsage()),
        prompt_bytes=sum(row.prompt_bytes for row in rows),
        seconds=max((row.seconds for row in rows), default=0.0),
    )
    return align([HEADER, *body, _cells(total)])


def _cells(row: AgentRow) -> tuple[str, ...]:
    about = "~" if row.usage.estimated else ""
    tokens = (f"{about}{count:,}" for count in (row.usage.prompt, row.usage.cached, row.usage.completion))
    return (row.name, str(row.calls), *tokens, f"{row.prompt_bytes:,}", f"{row.seconds:.1f}")


def transfer_table(transfers: Sequence[Transfer]) -> list[str]:
    """The lines of the table of hand-overs, with the bytes of all."""
    body = [(t.what, f"{t.source} -> {t.target}", f"{t.size:,}") for t in transfers]
    total = ("together", "", f"{sum(t.size for t in transfers):,}")
    return align([("jail to jail", "from -> to", "bytes"), *body, total])


def align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns of equal width, columns of figures to the right."""
    columns = [_fit(column) for column in zip(*rows, strict=True)]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _fit(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    figures = column[-1].lstrip("~")[:1].isdigit()
    return [cell.rjust(width) if figures else cell.ljust(width) for cell in column]
