"""Rounds over measures over sandboxes, so that a slow minute of the machine affects all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.jail.cells import CELLS
from benchmarks.jail.parameters import Parameters
from benchmarks.jail.participant import Participant, join
from benchmarks.jail.sandbox import Sandbox
from benchmarks.runtime.sample import Sample

Taking = Callable[[Participant], Mapping[str, float]]

TAKINGS: dict[str, Taking] = {
    "start": Participant.start,
    "assign": Participant.assign,
    **{cell.name: partial(Participant.run, cell=cell) for cell in CELLS},
}
"""Name of a measure -> how a sample of it is taken."""


def samples(kinds: Mapping[str, type[Sandbox]], scratch: str, parameters: Parameters) -> Iterator[Sample]:
    """Takes all samples, in order.

    Each round starts new sandboxes, since the memory placement of a process's code and data can slow a loop in it
    by a tenth for its whole life.
    """
    for number in range(parameters.rounds):
        names = [name for name in turns(list(kinds), number) if number % kinds[name].rounds_apart == 0]
        with ExitStack() as stack:
            present = {name: join(kinds[name], scratch, parameters, stack) for name in names}
            for measure, take in TAKINGS.items():
                for name, participant in present.items():
                    yield _sample(number, measure, name, take(participant))


def turns(names: Sequence[str], number: int) -> list[str]:
    """A B C, then B C A, ...: each round begins with a different sandbox."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def _sample(number: int, measure: str, name: str, figures: Mapping[str, float]) -> Sample:
    return Sample(round=number, measure=measure, contender=name, outcome="measured", figures=dict(figures))
