"""Sizes and repetitions of a run, in one place, written into its results."""

from __future__ import annotations

from dataclasses import dataclass

MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Sizes are bytes.

    starts: warm starts per sample. round_trips: timed cells per sample. transfers: repetitions of a small
    transfer (a large one is done once per sample). idle: runtimes added to measure what one costs.
    pause: idle seconds before the measurement.
    crowd: runtimes alive at once; process_crowd: the same for contenders that need tens of megabytes and a
    second for each. crowd_passes: rounds over the crowd. regex: length of a subject whose match holds the
    interpreter lock; two more take four times as long, 26 takes about two seconds. held: size of all small
    objects in a full namespace. asks: status questions meanwhile. flood: what one cell prints. large_flood:
    the same, for contenders whose memory does not grow with it.
    """

    starts: int = 5
    round_trips: int = 300
    transfers: int = 10
    small: int = 1 * MB
    large: int = 500 * MB
    idle: int = 8
    pause: float = 15.0
    crowd: int = 200
    process_crowd: int = 8
    crowd_passes: int = 5
    regex: int = 26
    held: int = 1000 * MB
    asks: int = 20
    flood: int = 100 * MB
    large_flood: int = 10_000 * MB


QUICK = Parameters(
    starts=1,
    round_trips=10,
    transfers=2,
    small=MB // 10,
    large=MB,
    idle=2,
    pause=0.0,
    crowd=3,
    process_crowd=2,
    crowd_passes=2,
    regex=22,
    held=MB,
    asks=3,
    flood=MB,
    large_flood=2 * MB,
)
"""Checks in seconds that everything works; the figures mean nothing."""
