"""The order of samples: rounds over measures over contenders, so that drift affects all alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.runtime.measure import Heading


@dataclass(frozen=True, kw_only=True)
class Turn:
    round: int
    measure: Heading
    contender: str


def plan(measures: Sequence[Heading], contenders: Sequence[str], rounds: int) -> Iterator[Turn]:
    """A B C, then B C A, ...: each round starts with a different contender."""
    for number in range(rounds):
        for measure in measures:
            taken = [name for name in contenders if not measure.only or name in measure.only]
            if not taken or (measure.rounds is not None and number >= measure.rounds):
                continue
            first = number % len(taken)
            for contender in taken[first:] + taken[:first]:
                yield Turn(round=number, measure=measure, contender=contender)
