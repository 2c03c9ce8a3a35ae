"""Works on one job: begins its tasks, writes down what came of each, goes on where a process was killed.

Without Ray, and without a gRPC server: a client of the gateway like any other, with a token of the job's own. A Ray
actor and a plain process are shells around it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, TypeVar

from cenote.gateway.database import Database
from cenote.gateway.database_place import database_place
from cenote.gateway.jobs.account import JobAccount
from cenote.gateway.jobs.attempt import Attempt, Ended
from cenote.gateway.jobs.definition import rules_of, sandbox_of
from cenote.gateway.jobs.ledger import Failure, JobLedger, TaskOutcome, TaskRow
from cenote.gateway.jobs.room import AT_LEAST, need_of, room
from cenote.gateway.jobs.runtimes import JobRuntimes
from cenote.gateway.jobs.schedule import Schedule, Standing
from cenote.gateway.jobs.table import OVER, Jobs
from cenote.gateway.orchestrators.keys import Keys
from cenote.gateway.orchestrators.settings import OrchestratorSettings
from cenote.gateway.orchestrators.works import SupersededError
from cenote.gateway.quota_book import QuotaBook
from cenote.gateway.tokens import Tokens
from cenote.runtime.asynchronous import AsyncPythonRuntime
from cenote.runtime.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.jobs import SECONDS_KEPT
from cenote_proto.v1 import job_pb2
from cenote_security.errors import CenoteError, QuotaExceededError, UnavailableError, UsageError
from cenote_security.ids import JobId
from cenote_security.tokens import BearerToken

T = TypeVar("T")

log = logging.getLogger("cenote.jobs")

LOOK_EVERY: Final = 0.2
"""Seconds between two looks for a wish to cancel, or for tasks that are to be done again."""

KEEP_EVERY: Final = SECONDS_KEPT / 4
"""Seconds between two requests to keep the job's shared values for longer."""

COUNT_EVERY: Final = 15.0
"""Seconds between two questions for how many tasks there is room on the machines."""

ASK_EVERY: Final = 1.0
"""Seconds between two questions to a gateway that does not answer."""

NO_ANSWER: Final = "the platform, which does not answer whoever works on the job"

NO_ROOM: Final = "the tenant's quotas: too little of them is free"

NO_PLACE: Final = (
    "a place for its runtimes: none could be started just now; `cenote status` shows the machines"
)


class JobRunner:
    """Of one job. Blocks while there is something to do."""

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._job = JobId(settings.work)
        keys = Keys(settings.state.jobs / self._job)
        self._secrets = keys.secrets()
        # It asks again by itself, and says what it waits for.
        self._destination = Destination(settings.address, keys.token(), settings.authority, wait=0.0)
        self._room_wanted = threading.Event()

    def make_room(self) -> None:
        """Nothing more is begun; what is under way comes to its end."""
        self._room_wanted.set()

    def work(self) -> None:
        """Until all is done, or others are to have the place. Raises SupersededError, DatabaseUnavailableError."""
        with Database(database_place(self._settings.state)) as database:
            ledger = JobLedger(database, self._job)
            definition = job_pb2.JobDefinition.FromString(ledger.row.definition)
            runtimes = JobRuntimes(self._destination, self._job, sandbox_of(definition))
            work = _Work(database, ledger, definition, runtimes, self._secrets, self._room_wanted)
            asyncio.run(work.carry_out())
            self._end_token(database)

    def _end_token(self, database: Database) -> None:
        """With the job. It is the one that this process had: a job that is done again is given another."""
        job = Jobs(database).of_all(self._job)
        token = BearerToken.parse(self._destination.token)
        if job.state in OVER and token is not None:
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
        """Until it is known how many there is room for."""
        self._need = need_of(sandbox_of(definition))
        self._tenant = ledger.row.tenant
        self._variables: dict[str, ObjectReference] = {}
        self._missing: Failure | None = None
        self._spent: Failure | None = None
        """Why no further agent begins. Set by the first that the budget did not cover."""
        self._looked = False
        """Whether anything could have begun."""
        self._cancelling = False
        """Whether tasks that are stopped are over. Those that are stopped for want of the database are not."""
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
                self._take_up(self._ledger.added(self._schedule.known))
                self._begin()
                await self._wait()
        finally:
            keeping.cancel()
            counting.cancel()
            await self._stop()
        await self._leave_variables()

    @property
    def _leaves(self) -> bool:
        """Not before something could begin: else works that make room for each other would never get any further."""
        return self._looked and self._room_wanted.is_set()

    async def _is_over(self) -> bool:
        if not self._schedule.is_over:
            return False
        self._take_up(self._ledger.added(self._schedule.known))
        return self._schedule.is_over and self._ledger.finish()

    def _take_up(self, standings: Sequence[Standing]) -> None:
        """Tasks that were given back to be done, perhaps with another budget."""
        if standings:
            self._schedule.add(standings)
            self._account = JobAccount(self._ledger, self._definition, self._secrets)
            self._spent = None

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
        """Until something may have changed. Raises what a task could not write down."""
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

    async def _attempt(self, standing: Standing) -> None:
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
            # Written down before its runtime is ended: who cancels the job then finds it done.
            self._write(standing, await self._ended(runtime, standing, row))
        except asyncio.CancelledError:
            if self._cancelling:
                self._ledger.end(standing.position, "cancelled", TaskOutcome())
                self._schedule.ended(standing.position, "over", self._clock())
            raise
        finally:
            await self._runtimes.end(runtime)

    async def _ended(self, runtime: AsyncPythonRuntime, standing: Standing, row: TaskRow) -> Ended:
        try:
            model = self._account.model(standing.position) if row.kind == "task" else None
        except UsageError as error:
            failure = Failure(type=type(error).__name__, message=str(error), reason="model", stage="platform")
            return Ended(verdict="over", outcome=TaskOutcome(error=failure))
        return await Attempt(runtime, self._definition, row, self._variables, model).carry_out()

    def _write(self, standing: Standing, ended: Ended) -> None:
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

    def _refused(self, row: TaskRow) -> Failure | None:
        """Why it is of no use to begin it."""
        return self._missing or (self._spent if row.kind == "task" else None)

    # -- all of them --

    async def _hold_variables(self) -> None:
        for name, reference in self._definition.variables.items():
            try:
                self._variables[name] = await self._patiently(partial(self._runtimes.reference, reference))
            except CenoteError as error:
                message = f"the shared value of the variable {name!r} is gone: {error}; submit the job again with it"
                self._missing = Failure(
                    type=type(error).__name__, message=message, reason="variables", stage="variables"
                )

    async def _keep_variables(self) -> None:
        """For whoever takes the job up: it may be a while until there is somebody."""
        while True:
            await self._leave_variables()
            await asyncio.sleep(KEEP_EVERY)

    async def _count_room(self) -> None:
        """Machines come and go."""
        while True:
            with suppress(CenoteError):  # the next one may be answered
                self._on_machines = await self._runtimes.room()
            await asyncio.sleep(COUNT_EVERY)

    async def _leave_variables(self) -> None:
        for reference in self._variables.values():
            await self._runtimes.leave(str(reference.holding.id))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Until the gateway answers, which may be started again just now. Raises SupersededError."""
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
        """Interrupts what is under way, and waits for that."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, SupersededError):
                log.warning("a task was stopped badly: %s", outcome)
        self._tasks = set()


def _awaited(outcome: TaskOutcome) -> str:
    """What a task waits for that could not begin. An error's own text is for the log: it names no state."""
    error = outcome.error
    if error is None or error.type == QuotaExceededError.__name__:
        return NO_ROOM
    log.info("a task could not begin: %s: %s", error.type, error.message)
    return NO_PLACE
