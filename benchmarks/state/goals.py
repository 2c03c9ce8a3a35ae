"""Limits on the cost of saving state, checked against a run. A goal that was not measured is reported as open."""

from __future__ import annotations

from benchmarks.runtime.goals import MB, MS, Goal

GOALS = (
    Goal(
        text="an ordinary cell takes at most 3 ms more with its state kept",
        measure="cell-trivial",
        figure="added",
        at_most=3 * MS,
    ),
    *(
        Goal(
            text=f"`cell-{name}` takes at most 1.3 times as long",
            measure=f"cell-{name}",
            figure="times",
            at_most=1.3,
        )
        for name in ("calls", "column", "sweep", "objects", "temporaries")
    ),
    Goal(text="1 GB kept in at most 10 ms", measure="moves-1GB", figure="keep", at_most=10 * MS),
    Goal(text="2 GB gone back to in at most 20 ms", measure="moves-2GB", figure="back", at_most=20 * MS),
    Goal(
        text="and 500 times faster than Kishu",
        measure="moves-2GB",
        figure="back",
        rival="kishu",
        times_better=500,
    ),
    Goal(
        text="a checkpoint of 500 MB of which a tenth has changed: at most 0.2 CPU-s",
        measure="stored-500MB",
        figure="after 10 %",
        at_most=0.2,
    ),
    Goal(text="and at most 55 MB", measure="stored-500MB", figure="those bytes", at_most=55 * MB),
    Goal(text="500 MB restored in at most 0.3 CPU-s", measure="stored-500MB", figure="restore", at_most=0.3),
    Goal(
        text="usable again within 100 ms of a segfault beside 500 MB",
        measure="segfault",
        figure="usable again",
        at_most=100 * MS,
    ),
)
