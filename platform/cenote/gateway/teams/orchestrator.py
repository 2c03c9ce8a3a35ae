"""Works on one team: builds it from its stored definition, runs its plans, continues after a killed process.

Followers of a team get each event of an agent once, whichever process it happened in.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from cenote.agent import AgentResponse
from cenote.agent.vocabulary.events import EventType
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.teams.definition import budget_of, common_sandbox
from cenote.gateway.teams.ledger import Note, TeamLedger
from cenote.gateway.teams.replay import RecordedTeam, as_text
from cenote.gateway.teams.runtimes import TeamReferences, TeamRuntimes
from cenote.gateway.teams.tables import MODEL_CALL, RunRow, StoredTeamEvent
from cenote.gateway.teams.team_builder import add_members, keyless, work_of
from cenote.gateway.work.settings import OrchestratorSettings, WorkSecrets, put_back
from cenote.gateway.work.workload import SupersededError
from cenote.models.errors import ModelRequestError
from cenote.runtime.inject.injectables import Variable
from cenote.runtime.remote.address import Destination
from cenote.team import Outcome, Team, TeamEvent, TeamState
from cenote_proto.scalars import make
from cenote_proto.v1 import team_pb2
from cenote_security.errors import CenoteError, UnknownReferenceError
from cenote_security.ids import TeamId
from cenote_worker.wire.results import from_info

_TEXT = EventType.TEXT.value


class TeamEventPublisher:
    """Publishes events of one run. Prose is buffered until `flush`: it comes in pieces, and each write is a sync."""

    def __init__(self, ledger: TeamLedger, run: int, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._run = run
        self._clock = clock
        self._waiting: list[StoredTeamEvent] = []
        self._known: dict[tuple[str, str], int] = {}
        """By agent and task: the number of events of an earlier process that are still to be replayed."""

    def hear(self, record: RecordedTeam, event: TeamEvent) -> None:
        if record.is_rehearsed(event.agent):
            return
        news = StoredTeamEvent(
            number=0,
            at=self._clock(),
            run=self._run,
            agent=event.agent,
            place=record.place(event.agent),
            kind=event.type.value,
            content=event.content,
        )
        if news.kind == _TEXT:
            if not record.is_replayed(event.agent):
                self._gather(news)
        elif not self._was_told(news):
            self._waiting.append(news)
            self.flush()

    def take(self) -> list[StoredTeamEvent]:
        """Returns the buffered events; the caller writes them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def flush(self) -> None:
        if self._waiting:
            self._ledger.tell(self._waiting)
            self.take()  # not before: events that could not be written are written later

    def _gather(self, news: StoredTeamEvent) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is not None and (last.agent, last.place, last.kind) == (news.agent, news.place, _TEXT):
            self._waiting[-1] = replace(last, content=last.content + news.content)
        else:
            self._waiting.append(news)

    def _was_told(self, news: StoredTeamEvent) -> bool:
        key = (news.agent, news.place)
        if key not in self._known:
            self._known[key] = self._ledger.told(self._run, *key, _TEXT)
        if not self._known[key]:
            return False
        self._known[key] -= 1
        return True


log = logging.getLogger("cenote.teams")

_WITHOUT_KEY: Final = (None, 401, 403)
"""Statuses of refusals that a missing key may explain; None where no server was called."""

LOOK_EVERY: Final = 0.1
"""Seconds between two checks for a cancellation, and between two writes of what models say."""


class Orchestrator:
    """Works on one team. Blocks while there is something to do."""

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._team = TeamId(settings.work)
        self._keys = WorkSecrets(settings.state.teams / self._team)
        self._secrets = self._keys.secrets()
        self._destination = Destination(settings.address, self._keys.token(), settings.authority, wait=0.0)
        self._holder = f"team {self._team}"

    def work(self) -> None:
        """Runs until the team has nothing more to do. Raises SupersededError, DatabaseUnavailableError."""
        with Database(database_place(self._settings.state)) as database:
            ledger = TeamLedger(database, self._team)
            while (run := ledger.next_run()) is not None:
                asyncio.run(_OneRun(self, ledger, run).carry_out())

    def make_room(self) -> None:
        """A task of agents cannot be paused."""

    @property
    def secrets(self) -> dict[str, str]:
        return self._secrets

    def definition(self, stored: bytes) -> team_pb2.TeamDefinition:
        """With the credentials of its jails."""
        definition = team_pb2.TeamDefinition.FromString(stored)
        put_back(definition, self._keys.credentials())
        return definition

    def references(self) -> TeamReferences:
        return TeamReferences(self._destination, self._holder)

    def runtimes(self, run: int, agents: list[str], record: RecordedTeam) -> TeamRuntimes:
        def key(agent: str) -> str:
            course = record.course(agent)
            text = f"{self._team}/{run}/{agent}/{course.place}/{course.cells}"
            return f"team {hashlib.sha256(text.encode()).hexdigest()}"

        return TeamRuntimes(self._destination, self._team, run, agents, key)


class _OneRun:
    def __init__(self, orchestrator: Orchestrator, ledger: TeamLedger, run: RunRow) -> None:
        self._orchestrator = orchestrator
        self._ledger = ledger
        self._run = run
        self._request = team_pb2.StartRunRequest.FromString(run.work)
        self._definition = orchestrator.definition(ledger.team.definition)
        self._agents = [member.name for member in self._definition.members]
        self._teller = TeamEventPublisher(ledger, run.number)
        self._references = orchestrator.references()
        self._team: Team | None = None

    async def carry_out(self) -> None:
        """Runs the run to its end and then cancels its background tasks."""
        number = self._run.number
        if self._run.state == "waiting":
            self._ledger.begin_run(number)
        working = asyncio.create_task(self._work())
        watching = asyncio.create_task(self._watch(working))
        try:
            outcome = await working
        except asyncio.CancelledError:
            self._ledger.end_run(number, "cancelled")
        except (SupersededError, DatabaseUnavailableError):  # these say nothing about the run
            raise
        except CenoteError as error:
            told = f"{type(error).__name__}: {error}{_remedy(error, self._definition)}"
            self._ledger.end_run(number, "failed", error=told)
        except Exception:
            log.exception("run %d of %s failed", number, self._run.team)
            self._ledger.end_run(
                number, "failed", error="the platform failed at this; its operator's log says how"
            )
        else:
            self._ledger.end_run(number, "done", outcome=outcome.SerializeToString())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, working: asyncio.Task[team_pb2.TeamRun]) -> None:
        wanted = True
        while wanted:
            await asyncio.sleep(LOOK_EVERY)
            wanted = self._is_wanted()
        working.cancel()

    def _is_wanted(self) -> bool:
        """Returns True while the database is unavailable, so that a later cancellation is still noticed."""
        try:
            self._teller.flush()
            return not self._ledger.is_cancelled(self._run.number)
        except SupersededError:  # the code that ends the run gets this error again
            return False
        except DatabaseUnavailableError as error:
            log.error("%s waits: %s", self._run.team, error)
            return True

    async def _work(self) -> team_pb2.TeamRun:
        notes = self._still_true(self._ledger.notes())
        record = RecordedTeam(notes, self._write, lambda agent, items: runtimes.register(agent, items))
        runtimes = self._orchestrator.runtimes(self._run.number, self._agents, record)
        team = self._team = self._built(record, runtimes, fresh=not notes)
        async with self._ending(team, runtimes):
            with team.heard_by(partial(self._hear, record)):
                return await self._outcome(team)

    @asynccontextmanager
    async def _ending(self, team: Team, runtimes: TeamRuntimes) -> AsyncIterator[None]:
        """Ends the run's runtimes on exit, unless another process continues with them: if this one was superseded, or
        the database was unavailable.
        """
        goes_on = False
        try:
            try:
                yield
            finally:
                with _written_down():
                    self._teller.flush()
                self._save(team.state)
        except (SupersededError, DatabaseUnavailableError):
            goes_on = True
            raise
        finally:
            await team.close()
            if not goes_on:
                with suppress(CenoteError):  # their leases end them
                    await asyncio.to_thread(runtimes.delete)

    def _still_true(self, notes: list[Note]) -> list[Note]:
        """The notes, if the namespaces that they describe still exist; else none, and tasks begin anew."""
        if self._run.state == "waiting":
            return []
        unseen = RecordedTeam([], self._write, lambda _agent, _items: None)
        runtimes = self._orchestrator.runtimes(self._run.number, self._agents, unseen)
        worked = [agent for agent in self._agents if any(note.agent == agent for note in notes)]
        lost = runtimes.lost(worked)
        if not lost:
            self._ledger.tell_of_run(self._run.number, "resumed")
            return notes
        runtimes.delete()
        self._ledger.forget_notes()
        reason = f"the runtimes of {', '.join(lost)} are gone; what was not finished begins anew"
        self._ledger.tell_of_run(self._run.number, "restarted", reason)
        return []

    def _built(self, record: RecordedTeam, runtimes: TeamRuntimes, *, fresh: bool) -> Team:
        row = self._ledger.team
        state = TeamState.from_json(row.state) if row.state else TeamState(team=row.name)
        if self._run.state == "waiting":
            # A run shares nothing with other runs but their cost.
            state = replace(state, steps=(), variables=())
        team = Team(
            row.name,
            budget=budget_of(self._definition.budget),
            sandbox=common_sandbox(self._definition),
            runtimes=runtimes.make,
            state=state,
            references=self._references,
            on_state=self._save,
            record=record,
        )
        variables = self._variables(fresh=fresh)
        add_members(team, self._definition, self._orchestrator.secrets, record.turns, variables)
        return team

    def _variables(self, *, fresh: bool) -> list[Variable]:
        """For the lead. Raises UnknownReferenceError for values that are gone before the lead had them."""
        variables = []
        for name, reference_id in self._request.variables.items():
            reference = self._references.find(reference_id)
            if reference is None and fresh:
                raise UnknownReferenceError(reference_id)
            variables.append(Variable(name, reference))
        return variables

    async def _outcome(self, team: Team) -> team_pb2.TeamRun:
        if not self._request.HasField("plan"):
            return _of_response(await team.run(self._request.task))
        inputs = [self._input(reference_id) for reference_id in self._request.inputs]
        work = work_of(self._request.plan, team)
        return self._of_plan(await work.run(*inputs, name=f"run-{self._run.number}"))

    def _input(self, reference_id: str) -> object:
        reference = self._references.find(reference_id)
        if reference is None:
            raise UnknownReferenceError(reference_id)
        return reference

    def _of_plan(self, outcome: Outcome) -> team_pb2.TeamRun:
        told = make(team_pb2.TeamRun, answer=outcome.answer)
        for each in outcome.results:
            result = make(told.results.add, agent=each.agent, answer=each.answer)
            if each.reference is not None:
                result.reference = self._references.keep(each.reference)
                result.info.CopyFrom(from_info(each.reference.info))
                self._references.leave(result.reference)
        return told

    def _hear(self, record: RecordedTeam, event: TeamEvent) -> None:
        with _written_down():
            self._teller.hear(record, event)

    def _write(self, note: Note) -> None:
        with _written_down():
            self._ledger.note(note, [*self._teller.take(), *self._calls(note)])
        if note.kind == "turn" and self._team is not None:
            self._save(self._team.state)

    def _calls(self, note: Note) -> Iterator[StoredTeamEvent]:
        """The event for a model's call, in one transaction with the note of it: each once, whatever is killed."""
        call = json.loads(note.data).get("call") if note.kind == "turn" else None
        if call is not None:
            yield StoredTeamEvent(
                number=0,
                at=time.time(),
                run=self._run.number,
                agent=note.agent,
                place=note.place,
                kind=MODEL_CALL,
                content=as_text(call),
            )

    def _save(self, state: TeamState) -> None:
        with _written_down():
            self._ledger.save_state(state.to_json())


@contextmanager
def _written_down() -> Iterator[None]:
    """Ends this process, as if it were killed, if a write fails: an unrecorded action must not become visible.

    An error would be raised to a caller that waits for an agent, such as a cell of the lead's, which would continue
    with it. The next process continues from what is recorded, in the existing runtimes.
    """
    try:
        yield
    except DatabaseUnavailableError as error:
        log.error("it is left to the next process: %s", error)
        os._exit(1)


def _of_response(response: AgentResponse) -> team_pb2.TeamRun:
    return make(team_pb2.TeamRun, answer=response.content, status=response.status.value)


def _remedy(error: CenoteError, definition: team_pb2.TeamDefinition) -> str:
    """Says where to set a key: the model's library names places that the team's author cannot reach."""
    if not isinstance(error, ModelRequestError) or error.status not in _WITHOUT_KEY:
        return ""
    members = ", ".join(keyless(definition))
    return members and (
        f"; the model of {members} has no key of the team's: give it with `secrets=` of the team and name it in "
        f"ModelSpec(secret=...), or have the platform started with `--team-env`"
    )
