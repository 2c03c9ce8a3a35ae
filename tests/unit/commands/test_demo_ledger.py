"""Tests of `cenote.demo.agents`."""

from __future__ import annotations

from cenote.demo.agents import AgentRow, Transfer, align, cost_table, transfer_table
from cenote.models.messages import TokenUsage


def row(name: str, *, seconds: float, estimated: bool = False) -> AgentRow:
    usage = TokenUsage(1000, 200, 50, estimated)
    return AgentRow(name=name, calls=3, usage=usage, prompt_bytes=4000, seconds=seconds)


def test_costs_add_up() -> None:
    """Calls, tokens and bytes are summed; the time is the longest, since agents wait for each other."""
    lines = cost_table([row("orchestrator", seconds=2.0), row("cleaner", seconds=1.5)])
    assert ["together", "6", "2,000", "400", "100", "8,000", "2.0"] == lines[-1].split()


def test_an_estimate_is_marked() -> None:
    """Tokens counted here, not reported by a server, carry a mark, also in the total."""
    lines = cost_table([row("a", seconds=1, estimated=True), row("b", seconds=1)])
    assert [True, False, True] == ["~" in line for line in lines[1:]]


def test_transfers_add_up() -> None:
    """Each hand-over has its bytes, and the last line has the total."""
    transfers = [Transfer(what="raw", source="a", target="b", size=1000)] * 2
    assert ["together", "2,000"] == transfer_table(transfers)[-1].split()


def test_columns_are_aligned() -> None:
    """Text goes to the left, figures to the right."""
    assert ["name   n", "x     10", "long   5"] == align([("name", "n"), ("x", "10"), ("long", "5")])
