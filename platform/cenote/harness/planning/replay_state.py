"""What a walk along a patched history begins with, reports to, and ends in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cenote.harness.patching.patched_history import LineStep
from cenote.harness.planning.state_contents import Contents
from cenote_worker.execution.trace import Location
from cenote_worker.history.step import START, StepRecord

NOTHING_SHARED: Final = "no state from before the change is kept any more"


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """Where a walk begins, and what it knows already.

    records: the line that was run. line: the patched one. fork: how many steps both share.
    base: the step whose end state the walk begins in: the head of the old line to continue from it, else one that
    both lines share. kept: steps whose end states can be gone back to and carried from. stored: see Ground.
    lent: more that can be carried from, and not be gone back to. forced: numbers of steps to run in any case, with
    the reason. needs: by position, what has to be right before that step runs. begun: names that were there before
    the first step, in their order.
    """

    records: tuple[StepRecord, ...]
    line: tuple[LineStep, ...]
    fork: int
    base: int
    kept: frozenset[int]
    stored: Mapping[int, int] = field(default_factory=dict)
    lent: frozenset[int] = frozenset()
    forced: Mapping[int, str] = field(default_factory=dict)
    needs: Mapping[int, frozenset[Location]] = field(default_factory=dict)
    begun: tuple[str, ...] = ()

    @property
    def continues(self) -> bool:
        """Whether the walk begins in the present state, and not in one that both lines share."""
        return self.base not in self.shared

    @property
    def head(self) -> int:
        """The end of the line that was run."""
        return self.records[-1].number if self.records else START

    @property
    def shared(self) -> frozenset[int]:
        """Steps whose end states both lines have."""
        return frozenset((START, *(record.number for record in self.records[: self.fork])))

    @property
    def begins_beside(self) -> bool:
        """Whether the base is a stored state, in which another process begins."""
        return self.base in self.stored and self.base not in self.kept

    @property
    def sources(self) -> frozenset[int]:
        """Steps whose end states can be carried from."""
        return self.lent | (frozenset((self.base,)) if self.begins_beside else self.kept)

    @property
    def beginnings(self) -> list[int]:
        """Steps whose end states both lines have, and that can be begun with, the newest first."""
        return sorted(self.shared & (self.kept | self.stored.keys()), reverse=True)

    def begun_from(self, kept: frozenset[int], stored: Mapping[int, int]) -> Course:
        """The same, with the states that are there by now: from the newest that both lines share if the base is none.

        Raises NoWayOn where there is no such state.
        """
        course = replace(self, kept=kept, stored=stored)
        if self.base in kept or self.base in stored:
            return course
        if not course.beginnings:
            raise NoWayOn(NOTHING_SHARED)
        course = course.from_shared() if self.continues else course
        return replace(course, base=course.beginnings[0])

    def from_shared(self) -> Course:
        """From the newest state that both lines share, with nothing learned."""
        return replace(self, base=next(iter(self.beginnings), START), forced={}, needs={})

    def from_older(self) -> Iterator[Course]:
        """From states that both lines share, the newest one left out: what lies outside the working directory is not
        brought back with any, so the steps that wrote it must come later; nor is all state with a stored one."""
        for base in self.beginnings[1:]:
            yield replace(self, base=base, forced={}, needs={})

    @property
    def begin(self) -> int:
        """Position in the line of the first step that the base is without."""
        if self.continues:
            return self.fork
        numbers = [START, *(record.number for record in self.records[: self.fork])]
        return numbers.index(self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDecision:
    """The decision on one step. reason: one sentence. record: the new step. equal: it wrote what it had written."""

    step: LineStep
    rerun: bool
    reason: str
    record: StepRecord
    equal: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A group that was brought over from a kept state. step: whose end state that is."""

    step: int
    locations: frozenset[Location]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """A walk that came to its end. contents: what the new history holds there."""

    verdicts: tuple[StepDecision, ...]
    carried: tuple[Carried, ...]
    contents: Contents


class RestartReplay(Exception):
    """The walk has to be started again: these steps must be run, or this must be right before these positions."""

    def __init__(
        self,
        *,
        forced: Mapping[int, str] | None = None,
        needs: Mapping[int, frozenset[Location]] | None = None,
    ) -> None:
        super().__init__(forced, needs)
        self.forced = forced or {}
        self.needs = needs or {}


class NoWayOn(Exception):
    """From this base the walk cannot be finished: something is needed that nothing on the way makes."""


class ReplayObserver(Protocol):
    """Receives the progress of the walk. May raise to stop it."""

    def before(self, position: int, step: LineStep, reason: str) -> None:
        """reason: why the step is run; empty when it is not."""

    def after(self, step: LineStep, record: StepRecord) -> None:
        """The step was run, on a state that was right for it."""
