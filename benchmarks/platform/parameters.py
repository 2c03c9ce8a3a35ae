"""Sizes and repetitions of a run, in one place, written into its results."""

from __future__ import annotations

from dataclasses import dataclass

MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Sizes are bytes. A pair has a number for services with cheap namespaces and one for those with a process each.

    round_trips: timed cells per sample. creations: namespaces made per sample, by `creators` at a time.
    idle: namespaces added to see what one costs. pause: idle seconds before the measurement.
    clients: at once, each with a namespace of its own. client_cells: what each of them runs. small, large: values
    handed over. receivers: of one value, the first included. agents: of the pipeline.
    """

    round_trips: int = 300
    creations: tuple[int, int] = (40, 4)
    creators: int = 4
    idle: tuple[int, int] = (50, 3)
    pause: float = 15.0
    clients: int = 64
    few_clients: int = 4
    client_cells: int = 30
    small: int = 8 * MB
    large: int = 512 * MB
    receivers: int = 3
    agents: int = 20


LONG_IDLE = (200, 3)

QUICK = Parameters(
    round_trips=5,
    creations=(2, 2),
    creators=2,
    idle=(2, 2),
    pause=0.0,
    clients=2,
    few_clients=2,
    client_cells=2,
    small=MB // 10,
    large=MB,
    receivers=2,
    agents=3,
)
"""Checks that everything works; the figures mean nothing."""
