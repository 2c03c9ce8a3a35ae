"""The batch jobs of a platform: submitted, found again, listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from cenote.jobs.checks import TaskCheck
from cenote.jobs.job import PATIENCE, Job, ask, off
from cenote.jobs.reports import JobStatus, status_of
from cenote.jobs.source import Source, tasks_of
from cenote.jobs.terms import JobTerms, head_of
from cenote.runtime.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.jobs import SUBMITTING, JobClient
from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import job_pb2

_PATIENCE: Final = 2 * SUBMITTING
"""Seconds for a submission, tried again where its line broke."""


class Jobs:
    """`platform.jobs`. Nothing is sent before the first call. Each has a twin for code that awaits, `async_...`.

    Calls raise UnavailableError when nobody answers there, RejectedError and its kinds for what is refused.
    """

    def __init__(self, destination: Destination) -> None:
        self._client = JobClient(destination)

    def submit(self, tasks: Source, **terms: Unpack[JobTerms]) -> Job:
        """A job of all these tasks, which the platform has when this returns. It works on them, whoever leaves.

        tasks: a file with one JSON object a line, or such dictionaries: `task`, a text for an agent, or `code`, a
        cell; `variables`, plain data that its runtime has under these names; `id`, by default its line. Each runs in
        a fresh runtime.
        name: by default its id. key: of this submission: repeated with it, it gives the job that is there.
        model: of the agents, a LiteLLM name or a ModelSpec. secrets: keys for it, see `Platform.team`.
        sandbox: of each runtime. setup: a cell that each runs first. variables: shared values, which all runtimes
        have without a copy; the platform keeps them for an hour until the job begins, and for one behind its end.
        result: the variable whose value is a task's result, as plain JSON.
        concurrency: tasks at once, by default 4; of more than the machines have room for, some wait.
        attempts: how often a task that fails is done, by default
        once; backoff: seconds before the second attempt, doubled with each further one. timeout: seconds of each.
        budget: tokens and cost of all agents together.
        max_steps, instructions, system_instructions, max_history, max_exec_output, max_exec_timeout, context_window,
        namespace_delta, prompt, and the limits max_run_time, max_total_tokens, max_input_tokens, max_output_tokens,
        max_answer_time, max_answer_length: of each agent, see CaveAgent.

        Raises BadTasksError, with all lines that are wrong, and UsageError: nothing has run then.
        """
        head = head_of(terms)
        return ask(self._submitted(head, tasks, terms.get("variables") or {}), _PATIENCE)

    async def async_submit(self, tasks: Source, **terms: Unpack[JobTerms]) -> Job:
        head = head_of(terms)
        return await off(self._submitted(head, tasks, terms.get("variables") or {}))

    def get(self, name: str) -> Job:
        """The job of that name, or id. Raises UnknownEntryError."""
        return ask(self._got(name), PATIENCE + self._client.wait)

    async def async_get(self, name: str) -> Job:
        return await off(self._got(name))

    def list(self) -> Sequence[JobStatus]:
        """All jobs that the token's tenant has."""
        return ask(self._listed(), PATIENCE + self._client.wait)

    async def async_list(self) -> Sequence[JobStatus]:
        return await off(self._listed())

    async def _submitted(
        self, head: job_pb2.JobHead, source: Source, variables: Mapping[str, ObjectReference]
    ) -> Job:
        check = TaskCheck(variables, has_model=head.definition.HasField("model"))
        batches = tasks_of(source, check)
        for name, reference in variables.items():
            head.definition.variables[utf8_text(name)] = await self._client.keep(
                reference, f"job {head.key}"[:200]
            )
        described = await self._client.submit(head, batches)
        return Job(self._client, described.id, described.name)

    async def _got(self, name: str) -> Job:
        described = await self._client.get(name)
        return Job(self._client, described.id, described.name)

    async def _listed(self) -> Sequence[JobStatus]:
        return [status_of(message) for message in await self._client.all()]
