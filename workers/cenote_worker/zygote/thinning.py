"""Which of many snapshots to give up: what was made long ago is kept sparsely, what is recent densely. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """step: whose end it is. labelled: somebody has given it a name."""

    step: int
    labelled: bool = False


def expendable(candidates: Sequence[Candidate]) -> int | None:
    """Index of the one to give up first; None when there is no choice. candidates: oldest first.

    The newest is what a crash falls back to. The first, the state that everything began with, goes late, and one
    with a label later still. Of the others goes the one whose gap, when it is gone, is the smallest for its age: so
    their distances grow like their age, as the backups of a tower of Hanoi.
    """
    if len(candidates) < 2:
        return None
    inner = range(1, len(candidates) - 1)
    choice = [index for index in inner if not candidates[index].labelled]
    if choice:
        return min(choice, key=lambda index: _gap_for_age(candidates, index))
    return 0 if not candidates[0].labelled else min(range(len(candidates) - 1))


def _gap_for_age(candidates: Sequence[Candidate], index: int) -> float:
    newest = candidates[-1].step
    gap = candidates[index + 1].step - candidates[index - 1].step
    return gap / (newest - candidates[index].step + 1)
