"""Former states that are needed until some work is done: they are not thinned away meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Target = int | str
"""The number of a step, or a label."""


class Holds:
    """What several need at once. hold: says all of it to the jail's warden, in place of what was said before."""

    def __init__(self, hold: Callable[[frozenset[Target]], None]) -> None:
        self._hold = hold
        self._needed: dict[object, frozenset[Target]] = {}

    def add(self, targets: Iterable[Target]) -> object:
        """Until what this gives is let go of."""
        holder = object()
        self._needed[holder] = frozenset(targets)
        self._say()
        return holder

    def let_go(self, holder: object) -> None:
        """Doing so twice is fine."""
        if self._needed.pop(holder, None) is not None:
            self._say()

    def _say(self) -> None:
        self._hold(frozenset[Target]().union(*self._needed.values()))
