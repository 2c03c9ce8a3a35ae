"""Which parts of a failing batch are tried next: parts of parts, until bad rows stand alone or the work is done."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cenote.data.errors import BatchFailedError

if TYPE_CHECKING:
    import pyarrow as pa

BUDGET: Final = 500
"""Failing calls, in all, that one process makes to find bad rows. Each costs a new jail, some 20 to 100 ms."""

EACH: Final = 50
"""Failing calls that it may make beyond those for each batch that fails: enough for some bad rows in a million."""

PARTS: Final = 8
"""Of one that failed. A failing call costs as much as ten others, and halves take twice as many as eighths."""

PROBES: Final = 5
"""Rows of a batch that are tried alone, one after the other until one is good: where bad rows are many, each large
part has some.
"""

HOPELESS: Final = 24
"""Failing calls without anything good, after which a batch is taken for one that has nothing."""

HOPELESS_AGAIN: Final = 3
"""The same after a batch that had nothing: a function that cannot work at all costs little more than its calls."""

_COST: Final = {"time": 50, "memory": 5}
"""Of failing calls that take longer than a new jail, by their reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a batch, and what came of them."""

    start: int
    rows: int
    came_to: pa.Table | BatchFailedError


Attempt = Callable[[int, int], "pa.Table | BatchFailedError"]
"""Tries the rows from here on, so many."""


class Splitting:
    """Of one process: what it may still spend on bad rows."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._left = budget
        self._patience = HOPELESS
        self._tries = 0
        """Failing calls for this batch."""

    def parts(self, rows: int, failure: BatchFailedError, attempt: Attempt) -> list[Part]:
        """The parts of a batch that failed as a whole, in their order; each that failed is as small as was found."""
        self._left += EACH - _cost(failure)
        self._tries = 0
        found = self._has_good_rows(rows, attempt)
        done, waiting = list[Part](), [(-rows, 0, failure)]
        while waiting:
            size, start, known = heapq.heappop(waiting)
            size = -size
            if size <= 1 or self._left <= 0 or (not found and self._tries >= self._patience):
                done.append(Part(start=start, rows=size, came_to=known))
                continue
            for first, several in _cut(start, size):
                came_to = self._attempted(attempt, first, several)
                if isinstance(came_to, BatchFailedError):
                    heapq.heappush(waiting, (-several, first, came_to))
                else:
                    found = True
                    done.append(Part(start=first, rows=several, came_to=came_to))
        self._patience = HOPELESS if found else HOPELESS_AGAIN
        self._left = max(self._left, 0)
        return sorted(done, key=lambda part: part.start)

    def _has_good_rows(self, rows: int, attempt: Attempt) -> bool:
        """Of some rows, alone. A function may need several at once: that none is good says little."""
        several = min(PROBES, self._patience) if rows > PROBES else 0
        # In different steps, since bad rows may come in equal ones.
        places = [rows * each // several + each for each in range(several)]
        return any(
            not isinstance(self._attempted(attempt, place, 1), BatchFailedError)
            for place in places
            if self._left > 0
        )

    def _attempted(self, attempt: Attempt, start: int, rows: int) -> pa.Table | BatchFailedError:
        came_to = attempt(start, rows)
        if isinstance(came_to, BatchFailedError):
            self._tries += 1
            self._left -= _cost(came_to)
        return came_to


def _cut(start: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts that come next: where they begin, and how many rows they have."""
    parts = min(PARTS, size)
    ends = [start + size * each // parts for each in range(parts + 1)]
    return ((first, end - first) for first, end in pairwise(ends))


def _cost(failure: BatchFailedError) -> int:
    return _COST.get(failure.reason, 1)
