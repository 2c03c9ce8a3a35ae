"""Stopwatches for `%time` and `%timeit`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_BUDGET = 1.0
"""Seconds that `%timeit` goes on for when nobody says how often."""

_MOST_LOOPS = 100_000

_wall = time.perf_counter
_cpu = time.process_time
_print = print


class Stopwatch:
    """Prints wall and CPU time from its making to `stop`. As a context it stops at the end, whatever happens."""

    def __init__(self) -> None:
        self._cpu = _cpu()
        self._wall = _wall()

    def stop(self) -> None:
        wall, cpu = _wall() - self._wall, _cpu() - self._cpu
        _print(f"CPU time: {duration(cpu)}, wall time: {duration(wall)}")

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


class TimeitResult:
    """What `%timeit -o` gives. timings: seconds of each loop. The names are IPython's."""

    def __init__(self) -> None:
        self.timings: list[float] = []

    @property
    def all_runs(self) -> list[float]:
        return self.timings

    @property
    def loops(self) -> int:
        return len(self.timings)

    @property
    def best(self) -> float:
        return min(self.timings)

    @property
    def worst(self) -> float:
        return max(self.timings)

    @property
    def average(self) -> float:
        return sum(self.timings) / len(self.timings)

    @property
    def stdev(self) -> float:
        mean = self.average
        return math.sqrt(sum((each - mean) ** 2 for each in self.timings) / len(self.timings))

    def __repr__(self) -> str:
        return f"<TimeitResult : {self}>"

    def __str__(self) -> str:
        if not self.timings:
            return "not timed yet"
        return f"{duration(self.average)} per loop (mean of {self.loops:,} loops; best {duration(self.best)})"


def repeat(loops: int | None, *, quiet: bool = False) -> Iterator[TimeitResult]:
    """Iterates over what is to be timed, then prints the mean and the best time of one round.

    loops: how often; None goes on for about a second. Each round is given what holds the times so far.
    """
    result = TimeitResult()
    ends = _wall() + _BUDGET
    for _ in range(loops or _MOST_LOOPS):
        started = _wall()
        yield result
        result.timings.append(_wall() - started)
        if loops is None and _wall() > ends:
            break
    if not quiet:
        _print(result)


def duration(seconds: float) -> str:
    """Three significant digits in the unit that fits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
