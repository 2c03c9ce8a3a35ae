"""The platform's goals, checked against a run."""

from __future__ import annotations

from benchmarks.runtime.goals import MB, MS, Goal

GOALS = (
    Goal(text="round trip of `x = 1` at most 500 µs", measure="assign", figure="p50", at_most=0.5 * MS),
    Goal(
        text="and 1/10 of the kernel gateway's",
        measure="assign",
        figure="p50",
        rival="kernel gateway",
        times_better=10,
    ),
    Goal(
        text="20 runtimes made a second",
        measure="create",
        figure="each of many",
        at_most=1 / 20,
    ),
    Goal(
        text="512 MB to a further runtime in at most 1 ms",
        measure="array-large",
        figure="further",
        at_most=1 * MS,
    ),
    Goal(
        text="and 100 times faster than Ray's put and get of it",
        measure="array-large",
        figure="further",
        rival="ray actors",
        rival_figure="first",
        times_better=100,
    ),
    Goal(
        text="a frame of 512 MB to a further runtime in at most 1 ms",
        measure="frame-large",
        figure="further",
        at_most=1 * MS,
    ),
    Goal(text="at most 5 MB for an idle runtime", measure="idle", figure="all", at_most=5 * MB),
)
