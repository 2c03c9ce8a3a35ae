"""Rounds over measures over sandboxes, so that a slow minute of the machine meets all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from benchmarks.jail.cells import CELLS
from benchmarks.jail.participant import Participant
from benchmarks.runtime.sample import Sample

Taking = Callable[[Participant], Mapping[str, float]]

TAKINGS: dict[str, Taking] = {
    "start": Participant.start,
    "assign": Participant.assign,
    **{cell.name: partial(Participant.run, cell=cell) for cell in CELLS},
}
"""Name of a measure -> how a sample of it is taken."""


def samples(present: Mapping[str, Participant], rounds: int) -> Iterator[Sample]:
    """All samples, in the order in which they are taken."""
    for number in range(rounds):
        for measure, take in TAKINGS.items():
            for name in turns(list(present), number):
                if number % present[name].kind.rounds_apart == 0:
                    yield _sample(number, measure, name, take(present[name]))


def turns(names: Sequence[str], number: int) -> list[str]:
    """A B C, then B C A, ...: each round begins with another one, so that none is always first."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def _sample(number: int, measure: str, name: str, figures: Mapping[str, float]) -> Sample:
    return Sample(round=number, measure=measure, contender=name, outcome="measured", figures=dict(figures))
