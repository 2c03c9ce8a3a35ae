"""A tenant's jobs from submission to removal: orders the changes to tasks, names, quotas and secrets."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from cenote.gateway.api.runtime_registry import RuntimeRegistry, page
from cenote.gateway.audit.events import Subject, access_decided
from cenote.gateway.jobs.definition import check_budget, check_definition, sandbox_of
from cenote.gateway.jobs.runtimes import names_of
from cenote.gateway.jobs.schedule import fits, need_of, tasks_on
from cenote.gateway.jobs.tables import (
    FINAL_JOB_STATES,
    ID_PREFIX,
    TASK_STATES,
    TASKS_OF_A_PAGE,
    JobRow,
    JobTotals,
    checked_name,
)
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.bounds import TenantBounds
from cenote.gateway.values.principal import Principal
from cenote.gateway.values.quota import Hold, Quota, unit_of
from cenote.gateway.work.processes import Orchestrators
from cenote.gateway.work.registry import END_PATIENCE, WorkRegistry
from cenote.gateway.work.settings import taken_out
from cenote.jobs.checks import MAX_KEY, MAX_RETRIED, TaskCheck
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import job_pb2
from cenote_security.auth.tokens import Scope
from cenote_security.errors import (
    EntryExistsError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    SecretFileError,
    UnknownEntryError,
    UsageError,
)
from cenote_security.ids import JobId, TenantId, new_job_id
from cenote_security.problems import Problems

log = logging.getLogger("cenote.jobs")

MAX_PAGE: Final = 100
MAX_OPEN: Final = 100
"""Jobs of one tenant that are not over."""

KEPT: Final = 30 * 86_400.0
"""Seconds that a job and its results are kept after its end."""

COUNTED_EACH_TIME: Final = 50_000
"""Tasks up to which the totals of a job are those of the moment."""

COUNTING_SHARE: Final = 10
"""A larger job is counted again after this many times as long as counting took."""


class Submission:
    """A job that is being submitted. credentials: of its jails, which its definition does not have."""

    def __init__(
        self, principal: Principal, job: JobId, head: job_pb2.JobHead, credentials: Mapping[str, str]
    ) -> None:
        definition = head.definition
        self.principal = principal
        self.job = job
        self.head = head
        self.credentials = credentials
        self.check = TaskCheck(definition.variables, has_model=definition.HasField("model"))
        self.stored = 0
        self.is_whole = False
        """Set once it has become a job."""
        self.digest = hashlib.sha256(_compared(definition))

    def take(self, tasks: Iterable[job_pb2.JobTask]) -> list[job_pb2.JobTask]:
        """Checks the next tasks; returns those to store. Raises UsageError where the input is too large."""
        good = []
        for task in tasks:
            task.id = utf8_text(task.id or str(self.check.tasks + 1))
            if self.check.see(task):
                good.append(task)
            line, task.line = task.line, 0
            self.digest.update(_counted(task.SerializeToString(deterministic=True)))
            task.line = line
        return good


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """until: by the monotonic clock."""

    version: tuple[object, ...]
    until: float
    totals: JobTotals


class JobRegistry(WorkRegistry[JobId]):
    """Calls block, from any thread. The caller is a Principal; its scopes are checked first.

    runtimes: of all tenants. endpoints: base URLs that models of tenants may use. bounds: what tenants may ask for.
    """

    def __init__(
        self,
        stores: Stores,
        state: StateFolder,
        runtimes: RuntimeRegistry,
        orchestrators: Orchestrators,
        endpoints: Collection[str] = (),
        bounds: TenantBounds | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(stores, state.jobs)
        self._runtimes = runtimes
        self._orchestrators = orchestrators
        self._endpoints = tuple(endpoints)
        self._bounds = bounds or TenantBounds()
        self._clock = clock
        self._settled: set[JobId] = set()
        """Jobs that are over, and whose token and quotas were released."""
        self._counted: dict[JobId, _Counted] = {}

    # -- submission --

    def begin(self, principal: Principal, head: job_pb2.JobHead) -> Submission:
        """Checks the settings that all tasks share; stores nothing. Raises UsageError, RejectedError."""
        principal.require(Scope.JOBS)
        wrong = Problems()
        if head.name.startswith(ID_PREFIX):
            wrong.note(
                UsageError(f"names that begin with {ID_PREFIX!r} are given by the platform; choose another")
            )
        else:
            with wrong.noting():
                checked_name(head.name)
        if len(head.key) > MAX_KEY:
            wrong.note(UsageError(f"a key has at most {MAX_KEY} characters"))
        definition = head.definition
        with wrong.noting():
            check_definition(
                definition,
                head.secrets,
                endpoints=self._endpoints,
                bounds=self._bounds,
                tenant=principal.tenant,
            )
        wrong.raise_all()
        self._check_fits(principal, definition)
        return Submission(principal, new_job_id(), head, taken_out(definition))

    def add(self, submission: Submission, tasks: Iterable[job_pb2.JobTask]) -> None:
        """Raises UsageError when the input grows too large. Problems of single tasks are reported by `complete`."""
        first = submission.stored + 1
        good = submission.take(tasks)
        if good and not submission.stored:
            definition = submission.head.definition.SerializeToString(deterministic=True)
            self._stores.jobs.begin(submission.principal.tenant, submission.job, definition)
        if good:
            for task in self._stores.job_tasks.add(submission.job, first, good):
                submission.check.refuse(task.line, f"the id {task.id!r:.100} is that of another line too")
            submission.stored += len(good)

    def complete(self, submission: Submission, tasks: int) -> JobRow:
        """Completes a submission of `tasks` tasks. Returns the job of an earlier submission with the same key, if
        any.

        Raises BadTasksError, UsageError for another number of tasks or a key of a different submission,
        EntryExistsError for a name that is taken, QuotaExceededError, RejectedError.
        """
        if tasks != submission.check.tasks:
            raise UsageError(f"{submission.check.tasks} tasks came, of {tasks}; submit them again")
        submission.check.finish()
        known = self._known(submission)
        if known is not None:
            self.discard(submission)
            # The transaction may have been committed though the database went away before it answered.
            self._go_on(known)
            return known
        principal, head = submission.principal, submission.head
        if self._stores.jobs.open(principal.tenant) >= MAX_OPEN:
            raise RejectedError(f"you have {MAX_OPEN} jobs that are not over; wait, or cancel some")
        self.settle_ended()
        self._reserve(principal.tenant, submission.job)
        self._record(principal, "job.submit")
        keys = self._keys(submission.job)
        keys.make(self._issued(principal, f"of job {submission.job}"))
        keys.keep(head.secrets, submission.credentials)
        try:
            job = self._stores.jobs.complete(
                principal.tenant,
                submission.job,
                name=head.name,
                key=head.key,
                digest=submission.digest.hexdigest(),
            )
        except EntryExistsError:
            known = self._known(submission)  # the same request came twice at once
            if known is None:
                raise
            self.discard(submission)
            return known
        submission.is_whole = True
        self._orchestrators.ensure(job.id)
        return job

    def _go_on(self, job: JobRow) -> None:
        if job.state in ("waiting", "running"):
            self._orchestrators.ensure(job.id)

    def discard(self, submission: Submission) -> None:
        """Drops the submitted tasks, unless they are a job by now: a disconnected client may ask for it again."""
        if submission.is_whole:
            return
        self._clear(submission.principal.tenant, submission.job)

    def _known(self, submission: Submission) -> JobRow | None:
        tenant, key = submission.principal.tenant, submission.head.key
        known = self._stores.jobs.by_key(tenant, key)
        if known is not None and known.digest != submission.digest.hexdigest():
            raise UsageError(
                f"the key {key!r:.100} is that of job {known.name!r}, which has other tasks or settings; take "
                f"another key"
            )
        return known

    # -- reading --

    def find(self, principal: Principal, name: str) -> JobRow:
        """By name or id. Raises UnknownEntryError."""
        principal.require(Scope.JOBS)
        return self._stores.jobs.find(principal.tenant, name)

    def page(self, principal: Principal, after: str, limit: int) -> tuple[Sequence[JobRow], str]:
        """One page of the tenant's jobs by name, and where the next page begins (empty at the end)."""
        principal.require(Scope.JOBS)
        entries = self._stores.jobs
        return page(lambda most: entries.of(principal.tenant, after=after, limit=most), limit, MAX_PAGE)

    def tasks(self, principal: Principal, request: job_pb2.ListTasksRequest) -> job_pb2.ListTasksReply:
        """Raises UnknownEntryError."""
        job, limit = self.find(principal, request.job), min(request.limit or TASKS_OF_A_PAGE, TASKS_OF_A_PAGE)
        states = {TASK_STATES[state] for state in request.states if state < len(TASK_STATES)}
        found = self._stores.job_tasks.summaries(job.id, request.after, limit, states)
        after = found[-1].index if len(found) == limit else 0
        return make(job_pb2.ListTasksReply, tasks=found, next_after=after)

    def task(self, principal: Principal, name: job_pb2.TaskName) -> job_pb2.TaskDescription:
        """Raises UnknownEntryError."""
        return self._stores.job_tasks.task(self.find(principal, name.job).id, name.task)

    def failures(self, principal: Principal, name: str) -> job_pb2.ListFailuresReply:
        """Raises UnknownEntryError."""
        groups = self._stores.job_tasks.failures(self.find(principal, name).id)
        return make(job_pb2.ListFailuresReply, groups=groups)

    def log(self, principal: Principal, name: job_pb2.TaskName) -> job_pb2.TaskLog:
        """Raises UnknownEntryError."""
        return self._stores.job_tasks.log(self.find(principal, name.job).id, name.task)

    def described(self, job: JobRow) -> job_pb2.JobDescription:
        sums = self._totals(job)
        told = make(
            job_pb2.JobDescription,
            id=job.id,
            name=job.name,
            state=job_pb2.JobDescription.State.Value(job.state.upper()),
            definition=job_pb2.JobDefinition.FromString(job.definition),
            counts=make(job_pb2.JobCounts, **sums.counts),
            created=job.created,
            started=job.started,
            ended=job.ended,
            tokens=sums.tokens,
            nanodollars=sums.nanodollars,
            starts=job.epoch,
            revision=job.revision,
            expires=job.ended + KEPT if job.ended else 0.0,
            waiting_for=job.waiting_for,
        )
        if job.budget:
            told.definition.budget.ParseFromString(job.budget)
        return told

    def _totals(self, job: JobRow) -> JobTotals:
        """Those of a large job may be some seconds old while it is at work: counting reads all its rows."""
        version = (job.state, job.wanted, job.revision)
        known = self._counted.get(job.id)
        if known is not None and known.version == version and time.monotonic() < known.until:
            return known.totals
        began = time.monotonic()
        totals = self._stores.job_tasks.sums(job.id)
        if totals.counts.total() > COUNTED_EACH_TIME:
            ended = time.monotonic()
            until = ended + COUNTING_SHARE * (ended - began)
            self._counted[job.id] = _Counted(version=version, until=until, totals=totals)
        return totals

    def room(self) -> int:
        """How many tasks of one job the machines have room for."""
        return tasks_on(self._runtimes.processors())

    # -- changes --

    def cancel(self, principal: Principal, name: str) -> JobRow:
        """Raises UnknownEntryError."""
        job = self.find(principal, name)
        self._record(principal, "job.cancel")
        self._stores.jobs.cancel(principal.tenant, job.id)
        self.settle_ended()
        return self._stores.jobs.find(principal.tenant, job.id)

    def retry(self, principal: Principal, request: job_pb2.RetryRequest) -> JobRow:
        """Raises UnknownEntryError, UsageError."""
        job = self.find(principal, request.job)
        if len(request.tasks) > MAX_RETRIED:
            raise UsageError(f"up to {MAX_RETRIED} tasks can be named at once; name none for all that failed")
        budget = None
        if request.HasField("budget"):
            check_budget(request.budget)
            budget = request.budget.SerializeToString()
        self._check_fits(principal, job_pb2.JobDefinition.FromString(job.definition))
        self.settle_ended()
        if not self._stores.quotas.holds(job.id):
            self._reserve(principal.tenant, job.id)
        self._record(principal, "job.retry")
        if request.tasks:
            self._renew(
                principal, job.id, budget, lambda: self._stores.job_tasks.renew(job.id, request.tasks)
            )
        else:
            place = 0
            while (end := self._stores.job_tasks.renewable(job.id, place)) > place:
                renewed = partial(self._stores.job_tasks.renew_between, job.id, place, end)
                self._renew(principal, job.id, budget, renewed)
                place = end
        self._orchestrators.ensure(job.id)
        return self._stores.jobs.find(principal.tenant, job.id)

    def _renew(
        self, principal: Principal, job: JobId, budget: bytes | None, renewed: Callable[[], int]
    ) -> None:
        """renewed: resets tasks, and returns how many."""
        with self._stores.database.transaction():
            # Checked here: the process that works on it may have ended it until now, and its token with it.
            was_over = self._stores.jobs.of_all(job).state in FINAL_JOB_STATES
            if not renewed():
                return
            if was_over:
                self._renew_token(principal, job)
            self._stores.jobs.reopen(principal.tenant, job, budget)

    def _reserve(self, tenant: TenantId, job: JobId) -> None:
        """Reserves quotas until the job is over. Raises QuotaExceededError."""
        self._settled.discard(job)
        hold = Hold(key=job, tenant=tenant, amounts={Quota.JOBS: 1}, lasting=True)
        self._stores.reserve(hold)

    def _renew_token(self, principal: Principal, job: JobId) -> None:
        keys = self._keys(job)
        self._forget_token(principal.tenant, keys)
        keys.replace_token(self._issued(principal, f"of job {job}"))

    def delete(self, principal: Principal, name: str) -> None:
        """Ends the job's work. Raises UnknownEntryError."""
        job = self.find(principal, name)
        self._record(principal, "job.delete")
        self._clear(principal.tenant, job.id)

    # -- cleanup --

    def values(self) -> Iterator[tuple[JobId, Principal, Sequence[str]]]:
        """Of each job that is not over and has shared values: its principal at the machines, and their ids."""
        for job in self._stores.jobs.at_work():
            with suppress(UnknownEntryError, SecretFileError, NotAuthenticatedError):  # it is being deleted
                definition = job_pb2.JobDefinition.FromString(self._stores.jobs.of_all(job).definition)
                if definition.variables:
                    holder = self._stores.tokens.authenticate(self._keys(job).token())
                    yield job, holder, list(definition.variables.values())

    def clear_remains(self) -> None:
        """At the start: clears jobs that were arriving or being deleted when a gateway was killed."""
        for row in self._stores.jobs.arriving():
            self._clear(row.tenant, row.id)
        self._clear_orphans(self._stores.jobs.ids)
        self._stores.jobs.clear_orphans()

    def settle_ended(self) -> None:
        """Releases the token and the quotas of jobs that are over. Their results stay."""
        for job, tenant in self._stores.jobs.over().items():
            if job in self._settled:
                continue
            self._forget_token(tenant, self._keys(job))
            self._stores.quotas.release(job)
            self._settled.add(job)

    def clear_old(self) -> None:
        """Removes jobs that ended long ago, and retries those that could not be cleared."""
        self.settle_ended()
        for gone, tenant in list(self._remains.items()):
            self._clear(tenant, gone)
        for job in self._stores.jobs.ended_before(self._clock() - KEPT):
            subject = Subject(tenant=job.tenant)
            self._stores.recorder.record(access_decided(subject, "job.expire")).result()
            self._clear(job.tenant, job.id)

    def _clear(self, tenant: TenantId, job: JobId) -> None:
        """Removes all of a job. Its row goes first, so that no client sees it any more: clients cannot retry what
        fails after that, `clear_old` does.
        """
        self._stores.jobs.remove(tenant, job)
        try:
            self._clear_rest(tenant, job)
        except BaseException:
            self._remains[job] = tenant
            raise
        self._remains.pop(job, None)

    def _clear_rest(self, tenant: TenantId, job: JobId) -> None:
        self._orchestrators.settle(job, END_PATIENCE)
        # If a job's process was killed, no other process ends its runtimes.
        self._runtimes.delete_all_of(tenant, names_of(job), "its job was deleted")
        self._settled.discard(job)
        self._counted.pop(job, None)
        keys = self._keys(job)
        self._forget_token(tenant, keys)
        keys.remove()
        self._stores.quotas.release(job)
        self._stores.jobs.clear(job)

    def _check_fits(self, principal: Principal, definition: job_pb2.JobDefinition) -> None:
        """Refuses a task that would wait for ever, since it never fits into the quotas."""
        limits, need = self._stores.quotas.limits(principal.tenant), need_of(sandbox_of(definition))
        quota = fits(limits, need)
        if quota is not None:
            raise QuotaExceededError(
                quota.value,
                0,
                need[quota],
                limits[quota],
                unit_of(quota),
                "give the tasks a smaller `sandbox`",
            )


def _compared(definition: job_pb2.JobDefinition) -> bytes:
    """The content that makes two submissions equal: ids of shared values differ in each process that shares them."""
    names = job_pb2.JobDefinition.FromString(definition.SerializeToString())
    for name in names.variables:
        names.variables[name] = ""
    return _counted(names.SerializeToString(deterministic=True))


def _counted(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data
