"""A script's interface to the batch jobs of a platform: submit, look up, list, wait.

A job continues when the script has ended.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from cenote.jobs.checks import TaskCheck
from cenote.jobs.job_client import LOOK_EVERY, SELDOM, JobClient, submission_time
from cenote.jobs.reports import (
    FailureCause,
    JobStatus,
    TaskDetails,
    TaskInfo,
    TaskLog,
    TaskResult,
    TaskState,
    cause_of,
    details_of,
    result_of,
    status_of,
    task_of,
)
from cenote.jobs.source import Source, TaskMessages, named, tasks_of
from cenote.platform_team import ModelSpec
from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import new_key
from cenote.runtime.remote.environments import with_built_environment
from cenote.runtime.remote.reconnection import RetrySchedule
from cenote.team.budget import Budget
from cenote_proto.scalars import make, put, utf8_text
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import option_messages, policies

T = TypeVar("T")

PATIENCE: Final = 40.0
"""Seconds for a call to the gateway, which has a shorter deadline of its own."""


class Job:
    """Made by `platform.jobs`. Each call has an awaitable counterpart, with `async_` in front of its name.

    Calls raise UnknownEntryError for a job that no longer exists.
    """

    def __init__(self, client: JobClient, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self._client = client

    def status(self) -> JobStatus:
        """The job's progress."""
        return self._ask(self._status())

    async def async_status(self) -> JobStatus:
        return await off(self._status())

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Waits until every task is over, or for `timeout` seconds, whichever comes first, and returns the status.

        A platform that does not answer for half a minute raises UnavailableError; the job continues.
        """
        return ask(self._ended(timeout), math.inf)

    async def async_wait(self, timeout: float | None = None) -> JobStatus:
        return await off(self._ended(timeout))

    def results(self, *, follow: bool = False, after: int = 0) -> Iterator[TaskResult]:
        """Results of the tasks that are over now, in the order of the input.

        follow: waits for the other tasks, each in its place, to the end of the job. after: only tasks after this
        place in the input. A broken connection is resumed where it broke.
        """
        stream = self._results(follow, after)
        try:
            while (result := ask(_next(stream), math.inf)) is not None:
                yield result
        finally:
            ask(_close(stream))

    async def async_results(
        self, *, follow: bool = False, after: int = 0
    ) -> AsyncGenerator[TaskResult, None]:
        stream = self._results(follow, after)
        try:
            while (result := await off(_next(stream))) is not None:
                yield result
        finally:
            await off(_close(stream))

    def tasks(
        self, *, after: int = 0, limit: int = 100, states: Sequence[TaskState] = ()
    ) -> Sequence[TaskInfo]:
        """A page of tasks in the order of the input, those after this place in it. states: only these."""
        return self._ask(self._tasks(after, limit, states))

    async def async_tasks(
        self, *, after: int = 0, limit: int = 100, states: Sequence[TaskState] = ()
    ) -> Sequence[TaskInfo]:
        return await off(self._tasks(after, limit, states))

    def task(self, task: str) -> TaskDetails:
        """One task with its work and result, by its id."""
        return self._ask(self._task(task))

    async def async_task(self, task: str) -> TaskDetails:
        return await off(self._task(task))

    def failures(self) -> Sequence[FailureCause]:
        """Causes of the failures up to now, the most frequent first."""
        return self._ask(self._failures())

    async def async_failures(self) -> Sequence[FailureCause]:
        return await off(self._failures())

    def logs(self, task: str) -> TaskLog:
        """The log of the last attempt at a task, by the task's id: output, errors, an agent's code; head and tail."""
        return self._ask(self._log(task))

    async def async_logs(self, task: str) -> TaskLog:
        return await off(self._log(task))

    def cancel(self) -> JobStatus:
        """Interrupts running tasks, and begins no more. Completed tasks keep their results."""
        return self._ask(self._cancelled())

    async def async_cancel(self) -> JobStatus:
        return await off(self._cancelled())

    def retry(self, tasks: Sequence[str] | None = None, *, budget: Budget | None = None) -> JobStatus:
        """Runs tasks again that failed or were cancelled: all of them, or those with these ids.

        Other results stay, and the tasks get as many attempts as at first. budget: replaces the job's; what was spent
        before counts.
        """
        return ask(self._retried(tasks, budget), math.inf)

    async def async_retry(
        self, tasks: Sequence[str] | None = None, *, budget: Budget | None = None
    ) -> JobStatus:
        return await off(self._retried(tasks, budget))

    def remove(self) -> None:
        """Ends the job's work, and removes the job with its results."""
        ask(self._client.delete(self.id), math.inf)

    async def async_remove(self) -> None:
        await off(self._client.delete(self.id))

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return ask(work, PATIENCE + self._client.wait)

    # -- on the background loop --

    async def _status(self) -> JobStatus:
        return status_of(await self._client.get(self.id))

    async def _ended(self, timeout: float | None) -> JobStatus:
        patience, pause = RetrySchedule(self._client.wait), LOOK_EVERY
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            status = status_of(await self._client.described(self.id, patience))
            left = ends - time.monotonic()
            if status.is_over or left <= 0:
                return status
            await asyncio.sleep(min(pause, left))
            pause = min(1.2 * pause, SELDOM)

    async def _results(self, follow: bool, after: int) -> AsyncGenerator[TaskResult, None]:
        messages = self._client.results(self.id, after, follow=follow)
        try:
            async for message in messages:
                yield result_of(message)
        finally:
            await messages.aclose()

    async def _tasks(self, after: int, limit: int, states: Sequence[TaskState]) -> Sequence[TaskInfo]:
        request = make(job_pb2.ListTasksRequest, job=self.id, after=after, limit=limit)
        request.states.extend(job_pb2.TaskSummary.State.Value(state.upper()) for state in states)
        return [task_of(message) for message in (await self._client.tasks(request)).tasks]

    async def _task(self, task: str) -> TaskDetails:
        return details_of(await self._client.task(self.id, task))

    async def _failures(self) -> Sequence[FailureCause]:
        return [cause_of(message) for message in (await self._client.failures(self.id)).groups]

    async def _log(self, task: str) -> TaskLog:
        message = await self._client.log(self.id, task)
        return TaskLog(text=message.text, left_out=message.left_out)

    async def _cancelled(self) -> JobStatus:
        return status_of(await self._client.cancel(self.id))

    async def _retried(self, tasks: Sequence[str] | None, budget: Budget | None) -> JobStatus:
        request = make(job_pb2.RetryRequest, job=self.id, tasks=named(tasks))
        if budget is not None:
            request.budget.CopyFrom(budget_message(budget))
        return status_of(await self._client.retry(request))


def budget_message(budget: Budget) -> team_pb2.TeamBudget:
    return option_messages.fill_options(team_pb2.TeamBudget(), budget)


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)


async def _close(stream: AsyncGenerator[T, None]) -> None:
    await stream.aclose()


def ask(work: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
    return background().wait(work, patience, "answer")


async def off(work: Coroutine[Any, Any, T]) -> T:
    """Runs on the loop that has the connections to platforms."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, background().loop))


class JobTerms(TypedDict, total=False):
    """See Jobs.submit. The last ones, from `max_steps` on, are settings of the agents, see CaveAgent."""

    name: str
    key: str
    model: str | ModelSpec | None
    secrets: Mapping[str, str] | None
    sandbox: SandboxPolicy | None
    setup: str
    variables: Mapping[str, ObjectReference] | None
    result: str
    concurrency: int
    attempts: int
    backoff: float
    timeout: float | None
    budget: Budget | None
    max_steps: int | None
    instructions: str | None
    system_instructions: str | None
    max_history: int | None
    max_exec_output: int | None
    max_exec_timeout: float | None
    context_window: int | None
    namespace_delta: bool | None
    prompt: Literal["lean", "full"] | None
    max_run_time: float | None
    max_total_tokens: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    max_answer_time: float | None
    max_answer_length: int | None


_PLAIN: Final = frozenset({"setup", "result", "concurrency", "attempts", "backoff", "timeout"})
_SETTINGS: Final = frozenset(field.name for field in team_pb2.AgentSettings.DESCRIPTOR.fields)


def head_of(terms: JobTerms) -> job_pb2.JobHead:
    """The head without its variables, which must be stored first. Raises UsageError."""
    if unknown := sorted(set(terms) - set(JobTerms.__annotations__)):
        known = ", ".join(sorted(JobTerms.__annotations__))
        raise UsageError(f"a job has no {unknown[0]!r}; there are {known}")
    definition = job_pb2.JobDefinition()
    for name, value in terms.items():
        if value is not None and name in _PLAIN:
            _set(definition, name, value)
        elif value is not None and name in _SETTINGS:
            _set(definition.settings, name, value)
    model, sandbox, budget = terms.get("model"), terms.get("sandbox"), terms.get("budget")
    if model is not None:
        definition.model.CopyFrom(_model(model))
    if sandbox is not None:
        definition.sandbox.CopyFrom(policies.from_policy(sandbox))
    if budget is not None:
        definition.budget.CopyFrom(budget_message(budget))
    key, secrets = terms.get("key") or new_key(), dict(terms.get("secrets") or {})
    return make(job_pb2.JobHead, name=terms.get("name", ""), key=key, definition=definition, secrets=secrets)


def _model(model: object) -> team_pb2.TeamModel:
    spec = ModelSpec(name=model) if isinstance(model, str) else model
    if not isinstance(spec, ModelSpec):
        raise UsageError(
            f"a job works without this process: name the model, or pass a ModelSpec, not a {type(model).__name__}"
        )
    return spec.message()


def _set(message: job_pb2.JobDefinition | team_pb2.AgentSettings, name: str, value: object) -> None:
    try:
        put(message, name, value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}={value!r:.100} is no such setting: {error}") from None


def _checked(head: job_pb2.JobHead, source: Source, shared: Collection[str]) -> TaskMessages:
    return tasks_of(source, TaskCheck(shared, has_model=head.definition.HasField("model")))


class Jobs:
    """`platform.jobs`. Nothing is sent before the first call. Each call has an awaitable counterpart, `async_...`.

    Calls raise UnavailableError when the platform does not answer, RejectedError and subclasses for a refusal.
    """

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._client = JobClient(destination)

    def _head(self, terms: JobTerms) -> job_pb2.JobHead:
        """With the environment of its sandbox built, which is waited for."""
        sandbox = terms.get("sandbox")
        if sandbox is not None:
            terms = {**terms, "sandbox": with_built_environment(self._destination, sandbox)}
        return head_of(terms)

    def submit(self, tasks: Source, **terms: Unpack[JobTerms]) -> Job:
        """Submits a job, which the platform has stored on return. It runs even if the script ends.

        tasks: a file with one JSON object a line, or such dictionaries: `task`, a text for an agent, or `code`, a
        cell; `variables`, plain data that its runtime has under these names; `id`, by default its line. Each runs in
        a fresh runtime.
        name: by default its id. key: of this submission: a repeated one with the same key returns the existing job.
        model: of the agents, a LiteLLM name or a ModelSpec. secrets: keys for it, see `Platform.team`.
        sandbox: of each runtime. setup: a cell that each runs first. variables: shared values, which all runtimes
        have without a copy; the platform keeps them for an hour before the job begins, and for one after its end.
        result: the variable whose value is a task's result, as plain JSON.
        concurrency: tasks at once, by default 4; tasks beyond what the machines have room for wait. attempts: how
        often a failing task is run, by default once; backoff: seconds before the second attempt, doubled with each
        further one. timeout: seconds of each.
        budget: tokens and cost of all agents together.
        max_steps, instructions, system_instructions, max_history, max_exec_output, max_exec_timeout, context_window,
        namespace_delta, prompt, and the limits max_run_time, max_total_tokens, max_input_tokens, max_output_tokens,
        max_answer_time, max_answer_length: of each agent, see CaveAgent.

        Raises BadTasksError, with all bad lines, and UsageError: nothing has run then.
        """
        head, variables = self._head(terms), terms.get("variables") or {}
        return ask(self._submitted(head, _checked(head, tasks, variables), variables), math.inf)

    async def async_submit(self, tasks: Source, **terms: Unpack[JobTerms]) -> Job:
        head, variables = await asyncio.to_thread(self._head, terms), terms.get("variables") or {}
        messages = await asyncio.to_thread(_checked, head, tasks, variables)
        return await off(self._submitted(head, messages, variables))

    def get(self, name: str) -> Job:
        """The job with that name or id. Raises UnknownEntryError."""
        return ask(self._got(name), PATIENCE + self._client.wait)

    async def async_get(self, name: str) -> Job:
        return await off(self._got(name))

    def page(self, *, after: str = "", limit: int = 100) -> Sequence[JobStatus]:
        """A page of the tenant's jobs by name, those after this one."""
        return ask(self._page(after, limit), PATIENCE + self._client.wait)

    async def async_page(self, *, after: str = "", limit: int = 100) -> Sequence[JobStatus]:
        return await off(self._page(after, limit))

    def list(self) -> Sequence[JobStatus]:
        """All jobs of the token's tenant."""
        return ask(self._listed(), PATIENCE + self._client.wait)

    async def async_list(self) -> Sequence[JobStatus]:
        return await off(self._listed())

    async def _submitted(
        self, head: job_pb2.JobHead, messages: TaskMessages, variables: Mapping[str, ObjectReference]
    ) -> Job:
        for name, reference in variables.items():
            head.definition.variables[utf8_text(name)] = await self._client.keep(
                reference, f"job {head.key}"[:200]
            )
        described = await self._client.submit(
            head, messages, submission_time(tasks=messages.tasks, size=messages.bytes)
        )
        return Job(self._client, described.id, described.name)

    async def _got(self, name: str) -> Job:
        described = await self._client.get(name)
        return Job(self._client, described.id, described.name)

    async def _page(self, after: str, limit: int) -> Sequence[JobStatus]:
        return [status_of(message) for message in await self._client.page(after, limit)]

    async def _listed(self) -> Sequence[JobStatus]:
        return [status_of(message) for message in await self._client.all()]
