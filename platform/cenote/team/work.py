"""What a team can do, and one thing after the other. References go from work to work, never values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cenote.runtime import ObjectReference
from cenote.team.member import Member
from cenote.team.progress import Progress, StepResult
from cenote_security.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a plan gave: the results of its last steps."""

    results: tuple[StepResult, ...]

    @property
    def references(self) -> tuple[ObjectReference, ...]:
        return tuple(result.reference for result in self.results if result.reference is not None)

    @property
    def reference(self) -> ObjectReference:
        """The only one. Raises UsageError if there are none or several."""
        if len(self.references) != 1:
            raise UsageError(f"this outcome has {len(self.references)} references; see its `results`")
        return self.references[0]

    @property
    def answer(self) -> str:
        """The last words of the last agents, a paragraph each."""
        return "\n\n".join(result.answer for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run of a plan. key: the way to the part that is being done. fresh: agents are made for it."""

    progress: Progress
    key: str
    fresh: bool = False

    def into(self, part: int) -> Course:
        return replace(self, key=f"{self.key}/{part}")


class Work(ABC):
    """Something that agents do with references. Plans are values: one may run often, and several times at once.

    takes, gives: how many references go in and come out.
    """

    @property
    @abstractmethod
    def takes(self) -> int: ...

    @property
    @abstractmethod
    def gives(self) -> int: ...

    @property
    @abstractmethod
    def members(self) -> tuple[Member, ...]:
        """Who does it."""

    @abstractmethod
    async def carry_out(self, inputs: Sequence[object], course: Course) -> tuple[StepResult, ...]:
        """Do it, as a part of a run."""

    def __rshift__(self, after: Work) -> Chain:
        """`a >> b`: what `a` gives, `b` takes."""
        return Chain(self, after)

    async def run(self, *inputs: object, name: str | None = None) -> Outcome:
        """Do it with these inputs: references, or values, which are copied in once.

        name: of this run in the team's state. A run of the same name and inputs goes on where an earlier one, before
        a restart, has come to.

        Raises StepFailedError, BudgetExceededError, and what agents raise; then whatever ran beside was stopped.
        """
        return Outcome(results=await self.carry_out(self.checked(inputs), self.course(name)))

    def course(self, name: str | None, *, fresh: bool = False) -> Course:
        """A new run."""
        progress = self.members[0].ground.progress
        return Course(progress=progress, key=name or progress.run_name(), fresh=fresh)

    def checked(self, inputs: Sequence[object]) -> Sequence[object]:
        """The inputs of a run. Raises UsageError if they, or the agents, do not fit together."""
        if len(inputs) != self.takes:
            raise UsageError(f"this plan takes {self.takes} inputs, not {len(inputs)}")
        if len({id(member.ground) for member in self.members}) > 1:
            raise UsageError("the agents of a plan belong to one team")
        return inputs


def check_works(works: Iterable[object]) -> None:
    """Raises UsageError for what no plan is made of."""
    for work in works:
        if not isinstance(work, Work):
            raise UsageError(
                f"a plan is made of works, such as Step(agent, task), one by one, not of {work!r:.100}"
            )


class Chain(Work):
    """Works one after the other."""

    def __init__(self, *works: Work) -> None:
        check_works(works)
        self.works: tuple[Work, ...] = tuple(
            part for work in works for part in (work.works if isinstance(work, Chain) else (work,))
        )
        for before, after in pairwise(self.works):
            if before.gives != after.takes:
                raise UsageError(
                    f"a stage gives {before.gives} references and the next one takes {after.takes}; "
                    f"name what a step makes with gives=..., and what it is given with takes=[...]"
                )

    @property
    def takes(self) -> int:
        return self.works[0].takes

    @property
    def gives(self) -> int:
        return self.works[-1].gives

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for work in self.works for member in work.members)

    async def carry_out(self, inputs: Sequence[object], course: Course) -> tuple[StepResult, ...]:
        results: tuple[StepResult, ...] = ()
        for number, work in enumerate(self.works):
            results = await work.carry_out(inputs, course.into(number))
            inputs = [result.reference for result in results if result.reference is not None]
        return results
