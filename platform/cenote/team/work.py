"""What a team can do: one task of one agent, one thing after the other, several at once.

References go from work to work, never values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from cenote.agent import AgentResponse, ExecutionStatus
from cenote.runtime import ObjectReference
from cenote.runtime.inject.injectables import Variable, check_name
from cenote.team.concurrency import all_of, first_of, first_success
from cenote.team.errors import StepFailedError
from cenote.team.member import Member
from cenote.team.progress import StepResult, TeamProgress
from cenote.team.state import StepState
from cenote_security.errors import UnknownNameError, UsageError


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

    progress: TeamProgress
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


class Step(Work):
    """One agent, one task.

    takes: names of the variables of the agent's namespace that the inputs are put under. gives: the name of the one
    that the agent is to make; what it holds in the end is shared. Both are best named in the task.
    """

    def __init__(
        self, member: Member, task: str, *, takes: str | Sequence[str] = (), gives: str | None = None
    ) -> None:
        if not isinstance(member, Member):
            raise UsageError(f"a step is done by an agent of a team, not by {type(member).__name__}")
        if not isinstance(task, str) or not task.strip():
            raise UsageError(f"a task is a text, not {task!r}")
        self.member = member
        self.task = task
        if not isinstance(takes, str | Sequence):
            raise UsageError(f"takes is a name of a variable, or a list of such names, not {takes!r:.100}")
        self.inputs = (takes,) if isinstance(takes, str) else tuple(takes)
        self.output = gives
        for name in (*self.inputs, *((gives,) if gives is not None else ())):
            check_name(name, "variable")

    @property
    def takes(self) -> int:
        return len(self.inputs)

    @property
    def gives(self) -> int:
        return 0 if self.output is None else 1

    @property
    def members(self) -> tuple[Member, ...]:
        return (self.member,)

    async def carry_out(self, inputs: Sequence[object], course: Course) -> tuple[StepResult, ...]:
        state = StepState(
            key=course.key,
            agent=self.member.name,
            task=self.task,
            status="running",
            inputs=course.progress.identities(inputs),
        )
        done = course.progress.begin(state)
        if done is not None:
            return (done,)
        try:
            async with self._worker(course) as worker:
                result = await self._work(worker, inputs, course.key)
        except BaseException as error:
            course.progress.fail(course.key, error)
            raise
        course.progress.finish(course.key, result)
        return (result,)

    @asynccontextmanager
    async def _worker(self, course: Course) -> AsyncGenerator[Member, None]:
        if course.fresh:
            async with self.member.replica() as replica:
                yield replica
        else:
            async with self.member.turn:
                yield self.member

    async def _work(self, worker: Member, inputs: Sequence[object], place: str) -> StepResult:
        await worker.prepare()
        for name, value in zip(self.inputs, inputs, strict=True):
            put = partial(_put, worker, name, value)
            await worker.ground.record.once(worker.name, place, f"put {name}", put, _nothing, put)
        response = await worker.run(self.task, place=place)
        if response.status is not ExecutionStatus.SUCCESS:
            ended = f"its task ended as {response.status.value}"
            raise StepFailedError(worker.name, ended, response.content, response.error)
        reference = None if self.output is None else await self._made(worker, response)
        return StepResult(agent=worker.name, answer=response.content, reference=reference)

    async def _made(self, worker: Member, response: AgentResponse) -> ObjectReference:
        assert self.output is not None
        try:
            return await worker.runtime.share(self.output)
        except UnknownNameError:
            missing = f"it has not made {self.output!r}"
            raise StepFailedError(worker.name, missing, response.content, response.error) from None


def _nothing() -> None:
    """The agent has the input, and may have changed it since."""


async def _put(worker: Member, name: str, value: object) -> None:
    try:
        await worker.runtime.update_variable(name, value)
    except UnknownNameError:
        await worker.runtime.inject(Variable(name, value))


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
