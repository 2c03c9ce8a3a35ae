"""Which shared values make room in memory for another. Decides only: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """A value that could go to disk. used: when it last was, in nanoseconds of one clock.

    held: whether a runtime has it too. Its memory would not become free, and be written besides.
    """

    name: str
    size: int
    used: int
    held: bool


def evicted(values: Iterable[InMemory], lacking: int) -> Sequence[InMemory] | None:
    """Those that go to disk, least recently used first, so that `lacking` bytes become free.

    None when all that could go are not enough: then none of them has to.
    """
    idle = sorted((value for value in values if not value.held), key=lambda value: value.used)
    chosen: list[InMemory] = []
    for value in idle:
        if lacking <= 0:
            break
        chosen.append(value)
        lacking -= value.size
    return chosen if lacking <= 0 else None
