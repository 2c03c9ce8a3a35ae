"""Works on one job: starts its tasks, records their outcomes, continues after a process was killed.

The cost of a model's answer is recorded before the model is called again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Literal, TypeVar

from cenote.gateway.jobs.attempt import AttemptResult, TaskAttempt
from cenote.gateway.jobs.definition import check_budget, rules_of, sandbox_of
from cenote.gateway.jobs.ledger import JobLedger, TaskFailure, TaskOutcome, TaskRow
from cenote.gateway.jobs.runtimes import JobRuntimes
from cenote.gateway.jobs.schedule import AT_LEAST, PendingTask, Schedule, need_of, room
from cenote.gateway.jobs.tables import FINAL_JOB_STATES, JobTable
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.store.quotas import QuotaBook
from cenote.gateway.store.tenants import Tokens
from cenote.gateway.teams.team_builder import model_of
from cenote.gateway.work.settings import OrchestratorSettings, WorkSecrets, put_back
from cenote.gateway.work.workload import SupersededError
from cenote.jobs.job_client import SECONDS_KEPT
from cenote.models import Model
from cenote.models.prices import list_price
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.team.budget import Amount, Budget
from cenote.team.budget_ledger import BudgetLedger
from cenote.team.metered_model import Meter, MeteredModel
from cenote_proto.v1 import job_pb2, team_pb2
from cenote_security.auth.tokens import BearerToken
from cenote_security.errors import CenoteError, QuotaExceededError, UnavailableError, UsageError
from cenote_security.ids import JobId


class JobAccount:
    """The budget of one job, in one process."""

    def __init__(
        self, ledger: JobLedger, definition: job_pb2.JobDefinition, secrets: Mapping[str, str]
    ) -> None:
        self._ledger = ledger
        self._definition = definition
        self._secrets = secrets
        tokens, nanodollars = ledger.spent()
        budget = ledger.row.budget
        message = team_pb2.TeamBudget.FromString(budget) if budget else definition.budget
        self._treasury = BudgetLedger(check_budget(message), Amount(tokens=tokens, nanodollars=nanodollars))

    def model(self, position: int) -> Model:
        """A model for one task's agent. Raises UsageError where cost is limited and the price is unknown."""
        message = self._definition.model
        model = model_of(message, self._secrets, 0)
        price = list_price(model.model_id)
        if price is None and self._treasury.budget.cost is not None:
            raise UsageError(
                f"the job's budget limits cost, and no price is known for {model.model_id!r}; limit tokens instead"
            )
        purse = _Purse(self._treasury, partial(self._ledger.spend, position))
        return MeteredModel(model, purse, Meter(), price)


class _Purse:
    """See Payer: the job's budget ledger, as one task draws on it."""

    def __init__(self, treasury: BudgetLedger, book: Callable[[int, int], None]) -> None:
        self._treasury = treasury
        self._book = book

    @property
    def budget(self) -> Budget:
        return self._treasury.budget

    async def reserve(self, amount: Amount) -> int:
        return await self._treasury.reserve(amount)

    def settle(self, ticket: int, used: Amount) -> None:
        self._treasury.settle(ticket, used)
        self._book(used.tokens, used.nanodollars)


T = TypeVar("T")

log = logging.getLogger("cenote.jobs")

LOOK_EVERY: Final = 0.2
"""Seconds between two checks for a cancellation, or for tasks to run again."""

KEEP_EVERY: Final = SECONDS_KEPT / 4
"""Seconds between two requests to extend the lifetime of the job's shared values."""

COUNT_EVERY: Final = 15.0
"""Seconds between two calls that count how many tasks the machines have room for."""

ASK_EVERY: Final = 1.0
"""Seconds between two calls to a gateway that does not answer."""

NO_ANSWER: Final = "the platform, which does not answer the job's process"

NO_ROOM: Final = "the tenant's quotas: too little of them is free"

NO_PLACE: Final = (
    "a place for its runtimes: none could be started just now; `cenote status` shows the machines"
)


class JobRunner:
    """Runs one job. Blocks while there is something to do."""

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._job = JobId(settings.work)
        keys = WorkSecrets(settings.state.jobs / self._job)
        self._secrets = keys.secrets()
        self._credentials = keys.credentials()
        # It retries by itself, and reports what it waits for.
        self._destination = Destination(settings.address, keys.token(), settings.authority, wait=0.0)
        self._room_wanted = threading.Event()

    def make_room(self) -> None:
        """Begins no more tasks; those under way complete."""
        self._room_wanted.set()

    def work(self) -> None:
        """Runs until all tasks are over, or `make_room` was called. Raises SupersededError,
        DatabaseUnavailableError.
        """
        with Database(database_place(self._settings.state)) as database:
            ledger = JobLedger(database, self._job)
            definition = job_pb2.JobDefinition.FromString(ledger.row.definition)
            put_back(definition, self._credentials)
            runtimes = JobRuntimes(self._destination, self._job, sandbox_of(definition))
            work = _Work(database, ledger, definition, runtimes, self._secrets, self._room_wanted)
            asyncio.run(work.carry_out())
            self._end_token(database)

    def _end_token(self, database: Database) -> None:
        """Ends the token with the job. It is the token of this process: a job that is reopened gets another."""
        job = JobTable(database).of_all(self._job)
        token = BearerToken.parse(self._destination.token)
        if job.state in FINAL_JOB_STATES and token is not None:
            Tokens(database).forget(job.tenant, token.id)


class _Work:
    def __init__(
        self,
        database: Database,
        ledger: JobLedger,
        definition: job_pb2.JobDefinition,
        runtimes: JobRuntimes,
        secrets: dict[str, str],
        room_wanted: threading.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._definition = definition
        self._runtimes = runtimes
        self._secrets = secrets
        self._account = JobAccount(ledger, definition, secrets)
        self._room_wanted = room_wanted
        self._clock = clock
        self._on_machines = AT_LEAST
        """The machines' limit of tasks; AT_LEAST until it is known."""
        self._need = need_of(sandbox_of(definition))
        self._tenant = ledger.row.tenant
        self._variables: dict[str, ObjectReference] = {}
        self._missing: TaskFailure | None = None
        self._spent: TaskFailure | None = None
        """Why no further agent begins. Set by the first one that the budget did not cover."""
        self._looked = False
        """Whether any task could have begun."""
        self._cancelling = False
        """Whether stopped tasks are over. Tasks that are stopped because the database is away are not."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._schedule = Schedule(rules_of(definition), ledger.begin())

    async def carry_out(self) -> None:
        await self._patiently(self._runtimes.clear)
        await self._hold_variables()
        keeping = asyncio.create_task(self._keep_variables())
        counting = asyncio.create_task(self._count_room())
        try:
            while not await self._is_over():
                if self._leaves and not self._tasks:
                    break
                if self._ledger.row.wanted == "cancel":
                    await self._cancel()
                    continue
                self._take_up()
                self._begin()
                await self._wait()
        finally:
            keeping.cancel()
            counting.cancel()
            await self._stop()
        await self._leave_variables()

    @property
    def _leaves(self) -> bool:
        """Not before a task could begin: otherwise jobs that make room for each other would make no progress."""
        return self._looked and self._room_wanted.is_set()

    async def _is_over(self) -> bool:
        if not self._schedule.is_over:
            return False
        self._take_up()
        return self._schedule.is_over and self._ledger.finish()

    def _take_up(self) -> None:
        """Adds the next tasks, and those that are to run again, perhaps with another budget."""
        if self._ledger.is_reopened():
            self._account = JobAccount(self._ledger, self._definition, self._secrets)
            self._spent = None
        if self._schedule.wants_more:
            self._schedule.add(self._ledger.added(self._schedule.known))

    def _begin(self) -> None:
        now = self._clock()
        if self._leaves:
            return
        self._looked = True
        if not self._schedule.wants(now):
            return
        book = QuotaBook(self._database)
        limits, used = book.limits(self._tenant), book.used(self._tenant)
        free = room(limits, used, self._need, self._schedule.running, self._on_machines)
        begun = self._schedule.start(now, free)
        if not begun:
            self._schedule.hold(now)
        if not self._schedule.running:
            self._ledger.wait_for(NO_ROOM)
        for standing in begun:
            task = asyncio.create_task(self._attempt(standing), name=f"task {standing.position}")
            self._tasks.add(task)

    async def _wait(self) -> None:
        """Waits until something may have changed. Raises the error if a task could not be recorded."""
        now = self._clock()
        next_at = self._schedule.next_at(now)
        patience = LOOK_EVERY if next_at is None else min(max(next_at - now, 0.0), LOOK_EVERY)
        if not self._tasks:
            await asyncio.sleep(patience)
            return
        over, self._tasks = await asyncio.wait(
            self._tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )
        for task in over:
            task.result()

    # -- one task --

    async def _attempt(self, standing: PendingTask) -> None:
        row = self._ledger.task(standing.position)
        refused = self._refused(row)
        if refused is not None:
            self._ledger.end(standing.position, "failed", TaskOutcome(error=refused))
            self._schedule.ended(standing.position, "over", self._clock())
            return
        attempt = self._ledger.start(standing.position)
        self._ledger.wait_for("")
        runtime = self._runtimes.make(standing.position, attempt)
        try:
            # Recorded before its runtime is ended: a client that cancels the job then finds it done.
            self._write(standing, await self._ended(runtime, standing, row))
        except asyncio.CancelledError:
            if self._cancelling:
                self._ledger.end(standing.position, "cancelled", TaskOutcome())
                self._schedule.ended(standing.position, "over", self._clock())
            raise
        finally:
            await self._runtimes.end(runtime)

    async def _ended(self, runtime: AsyncPythonRuntime, standing: PendingTask, row: TaskRow) -> AttemptResult:
        try:
            model = self._account.model(standing.position) if row.kind == "task" else None
        except UsageError as error:
            failure = TaskFailure(
                type=type(error).__name__, message=str(error), reason="model", stage="platform"
            )
            return AttemptResult(verdict="over", outcome=TaskOutcome(error=failure))
        return await TaskAttempt(runtime, self._definition, row, self._variables, model).carry_out()

    def _write(self, standing: PendingTask, ended: AttemptResult) -> None:
        position, outcome = standing.position, ended.outcome
        if outcome.error is not None and outcome.error.reason == "budget":
            self._spent = outcome.error
        after = self._schedule.ended(position, ended.verdict, self._clock())
        if ended.verdict == "crowded":
            self._ledger.unstart(position)
            self._ledger.wait_for(_awaited(outcome))
        elif after is not None:
            self._ledger.again(after, outcome, is_lost=ended.verdict == "lost")
        elif ended.verdict == "lost":
            self._ledger.end_lost(position, outcome)
        else:
            state: Literal["succeeded", "failed"] = "succeeded" if outcome.error is None else "failed"
            self._ledger.end(position, state, outcome)

    def _refused(self, row: TaskRow) -> TaskFailure | None:
        """Why the task cannot succeed, so that it need not begin."""
        return self._missing or (self._spent if row.kind == "task" else None)

    # -- all tasks --

    async def _hold_variables(self) -> None:
        for name, reference in self._definition.variables.items():
            try:
                self._variables[name] = await self._patiently(partial(self._runtimes.reference, reference))
            except CenoteError as error:
                message = f"the shared value of the variable {name!r} is gone: {error}; submit the job again with it"
                self._missing = TaskFailure(
                    type=type(error).__name__, message=message, reason="variables", stage="variables"
                )

    async def _keep_variables(self) -> None:
        """Keeps the values for a process that takes the job over, perhaps only after a while."""
        while True:
            await self._leave_variables()
            await asyncio.sleep(KEEP_EVERY)

    async def _count_room(self) -> None:
        """Updates the limit periodically: machines come and go."""
        while True:
            with suppress(CenoteError):  # the next call may succeed
                self._on_machines = await self._runtimes.room()
            await asyncio.sleep(COUNT_EVERY)

    async def _leave_variables(self) -> None:
        for reference in self._variables.values():
            await self._runtimes.leave(str(reference.holding.id))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retries until the gateway answers, which may be restarting. Raises SupersededError."""
        while True:
            try:
                return await ask()
            except UnavailableError:
                self._ledger.wait_for(NO_ANSWER)
                await asyncio.sleep(ASK_EVERY)

    async def _cancel(self) -> None:
        self._schedule.withdraw()
        self._cancelling = True
        await self._stop()
        self._cancelling = False
        self._ledger.cancel_rest()

    async def _stop(self) -> None:
        """Interrupts the tasks under way, and waits for them."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, SupersededError):
                log.warning("a task was stopped badly: %s", outcome)
        self._tasks = set()


def _awaited(outcome: TaskOutcome) -> str:
    """Why a task could not begin, for users. The error's own text goes to the log: it describes no state."""
    error = outcome.error
    if error is None or error.type == QuotaExceededError.__name__:
        return NO_ROOM
    log.info("a task could not begin: %s: %s", error.type, error.message)
    return NO_PLACE
