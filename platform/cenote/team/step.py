"""The smallest piece of a plan: one agent, one task."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from cenote.agent import AgentResponse, ExecutionStatus
from cenote.runtime import ObjectReference
from cenote.runtime.injectables import Variable, check_name
from cenote.team.errors import StepFailedError
from cenote.team.member import Member
from cenote.team.progress import StepResult
from cenote.team.state import StepState
from cenote.team.work import Course, Work
from cenote_security.errors import UnknownNameError, UsageError


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
