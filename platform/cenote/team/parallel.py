"""Works at once: all of them, the first to end, the first to succeed, one for each item of a list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any

from cenote.team.member import Member
from cenote.team.progress import StepResult
from cenote.team.structured import all_of, first_of, first_success
from cenote.team.work import Course, Outcome, Work, check_works
from cenote_security.errors import UsageError

Results = tuple[StepResult, ...]


class Parallel(Work):
    """Works that take the same inputs, at once."""

    def __init__(self, *works: Work) -> None:
        if not works:
            raise UsageError(f"{type(self).__name__} takes at least one work")
        check_works(works)
        if len({work.takes for work in works}) > 1:
            raise UsageError("works that run at once take the same inputs")
        self.works = works

    @property
    def takes(self) -> int:
        return self.works[0].takes

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for work in self.works for member in work.members)

    async def carry_out(self, inputs: Sequence[object], course: Course) -> Results:
        jobs = [work.carry_out(inputs, course.into(number)) for number, work in enumerate(self.works)]
        return await self._join(jobs)

    @abstractmethod
    async def _join(self, jobs: Sequence[Coroutine[Any, Any, Results]]) -> Results: ...


class Gather(Parallel):
    """All of the works; their results, in order. The first failure stops the others."""

    @property
    def gives(self) -> int:
        return sum(work.gives for work in self.works)

    async def _join(self, jobs: Sequence[Coroutine[Any, Any, Results]]) -> Results:
        return tuple(result for results in await all_of(jobs) for result in results)


class Race(Parallel):
    """The work that ends first, well or not; the others are stopped, their cells included."""

    @property
    def gives(self) -> int:
        given = {work.gives for work in self.works}
        if len(given) > 1:
            raise UsageError("works of which one is chosen give equally many references")
        return given.pop()

    async def _join(self, jobs: Sequence[Coroutine[Any, Any, Results]]) -> Results:
        return await first_of(jobs)


class FirstSuccess(Race):
    """The work that succeeds first; the others are stopped. Raises NoSuccessError if none does."""

    async def _join(self, jobs: Sequence[Coroutine[Any, Any, Results]]) -> Results:
        return await first_success(jobs)


def gather(*works: Work) -> Gather:
    """`gather(a, b) >> c`: both at once, on the same inputs; `c` takes what they give, in order."""
    return Gather(*works)


def race(*works: Work) -> Race:
    """The first to end decides, also by failing."""
    return Race(*works)


def first(*works: Work) -> FirstSuccess:
    """The first to succeed decides."""
    return FirstSuccess(*works)


async def fan_out(
    work: Work, items: Sequence[object], *, limit: int = 4, name: str | None = None
) -> list[Outcome]:
    """The work for each item, at most `limit` at once; the outcomes in the order of the items.

    Each item gets agents of its own, made like those of the work, and gone when it is done. The first failure stops
    the others and is raised. name: as for `Work.run`.
    """
    if not isinstance(limit, int) or limit < 1:
        raise UsageError(f"limit is how many items are worked on at once, from 1 on, not {limit!r}")
    checked = [work.checked([item]) for item in items]
    course = work.course(name, fresh=True)
    jobs = [work.carry_out(item, course.into(number)) for number, item in enumerate(checked)]
    return [Outcome(results=results) for results in await all_of(jobs, limit)]
