"""Repetitions of a run, in one place, written into its results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """rounds: over all sandboxes and measures. round_trips: per sample. repetitions: of a cell per sample.

    divisor: divides the work of each cell.
    """

    rounds: int = 12
    round_trips: int = 50
    repetitions: int = 3
    divisor: int = 1


QUICK = Parameters(rounds=1, round_trips=3, repetitions=1, divisor=50)
"""Runs in seconds to check that everything works; the figures mean nothing."""
