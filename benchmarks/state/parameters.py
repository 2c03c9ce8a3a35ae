"""Sizes and repetitions of a run, in one place, written into its results."""

from __future__ import annotations

from dataclasses import dataclass

MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Sizes are bytes of the frame that a namespace holds.

    cells: of one kind, with and without saving after each. fewest: minimum number, however long they take.
    cell_seconds: no further cells after this time. block: consecutive cells of one kind. columns: of the frame.
    divisor: of all sizes, and of the loops in cells.
    """

    cells: int = 30
    fewest: int = 4
    cell_seconds: float = 10.0
    block: int = 10
    columns: int = 100
    divisor: int = 1


QUICK = Parameters(cells=4, fewest=2, cell_seconds=1.0, block=2, columns=10, divisor=1000)
"""Checks that everything works; the figures mean nothing."""
