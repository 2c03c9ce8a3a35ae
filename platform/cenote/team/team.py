"""A team: agents that share a budget, hand each other references, and are sent through plans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn, Self, SupportsIndex

from cenote.agent import AgentResponse
from cenote.models import Model
from cenote.models.prices import Price
from cenote.runtime.inject.injectables import Function, Type, Variable
from cenote.team.budget import Amount, Budget
from cenote.team.budget_ledger import BudgetLedger, Remaining
from cenote.team.errors import UnknownTeamNameError
from cenote.team.events import Broadcast, TeamEvent, TeamRecord, Unrecorded
from cenote.team.member import Ground, Member, Profile
from cenote.team.progress import ReferencesInUse, ReferenceStore, TeamProgress, described
from cenote.team.runtimes import RuntimeFactory, embedded
from cenote.team.state import AgentState, TeamState, VariableState
from cenote.team.variables import ReferenceReader, TeamVariables
from cenote.team.work import Outcome, Work
from cenote_security.errors import NotCopiedError, UsageError
from cenote_security.options import Size, parse_size
from cenote_security.policy import SandboxPolicy


class Team:
    """Several agents, each in a runtime of its own.

    Either one of them leads: `run(task)` sets it to work, and its code finds the others in its namespace. Or the
    program does: it makes plans of steps (`cenote.team.Step`) and runs those. Use it in an `async with` block, which
    ends the runtimes.

    name: for people, and in the state.
    budget: what all agents may use together; None for no limit.
    sandbox: of agents that are given none.
    runtimes: makes the runtime of an agent; by default on this machine.
    state: where a team of this name had come to before a restart: what it spent, its variables, steps that are done.
    references: gives references names that outlast this process, and finds them again for `state`.
    variable_memory: bytes that the team's variables may hold together.
    on_state: called with the new state after each step's begin and end and each new variable, in the thread that made
        the change.
    record: keeps what the agents do, for a process that goes on with it in the middle of a task.

    Raises UsageError for the state of another team.
    """

    def __init__(
        self,
        name: str,
        *,
        budget: Budget | None = None,
        sandbox: SandboxPolicy | None = None,
        runtimes: RuntimeFactory = embedded,
        state: TeamState | None = None,
        references: ReferenceStore | None = None,
        variable_memory: Size = "8GiB",
        on_state: Callable[[TeamState], None] | None = None,
        record: TeamRecord | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UsageError(f"the name of a team is a printable text that is not empty, not {name!r}")
        for given, kind in ((budget, Budget), (sandbox, SandboxPolicy), (state, TeamState)):
            if given is not None and not isinstance(given, kind):
                raise UsageError(f"a team takes a {kind.__name__} there, not {given!r:.100}")
        if state is not None and state.team != name:
            raise UsageError(f"this is the state of team {state.team!r}, not of {name!r}")
        before = state or TeamState(team=name)
        self.name = name
        self._on_state = on_state
        self._references = references or ReferencesInUse()
        self._members: dict[str, Member] = {}
        self._lead: Member | None = None
        self._ground = Ground(
            name=name,
            sandbox=sandbox or SandboxPolicy(),
            runtimes=runtimes,
            treasury=BudgetLedger(
                budget or Budget(), Amount(tokens=before.tokens, nanodollars=before.nanodollars)
            ),
            variables=TeamVariables(parse_size(variable_memory), self._changed),
            reader=ReferenceReader(runtimes, sandbox or SandboxPolicy()),
            broadcast=Broadcast(),
            progress=TeamProgress(self._references, before.steps, self._changed),
            record=record or Unrecorded(),
        )
        self._restore_variables(before)

    def __repr__(self) -> str:
        return f"<Team {self.name!r} of {', '.join(self._members) or 'no agents'}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotCopiedError(
            "a Team", "its agents have runtimes; its `state` can be, and another team goes on with that"
        )

    # -- agents --

    def add(
        self,
        name: str,
        *,
        model: Model | Callable[[], Model],
        description: str | None = None,
        variables: Sequence[Variable] = (),
        functions: Sequence[Function] = (),
        types: Sequence[Type] = (),
        sandbox: SandboxPolicy | None = None,
        under: Member | None = None,
        lead: bool = False,
        price: Price | None = None,
        **settings: Any,
    ) -> Member:
        """A further agent.

        name: a Python identifier: its parent's code knows it by that. model: or a function that makes one, for each
        agent that is made like this one in a fan-out. description: shown to its parent's model.
        variables, functions, types: what its namespace starts with, besides `team` (the team's variables) and
        `budget` (where there are limits). sandbox: by default its parent's, or the team's. under: whose sub-agent it
        is. lead: whether `run` sets this one to work; else it is the first that was added. price: of the model's
        tokens, where the budget limits cost and LiteLLM's list does not know it. settings: further arguments of
        CaveAgent.

        Raises UsageError, WeakerSandboxError, BudgetExceededError.
        """
        if isinstance(name, str) and name in self._members:
            raise UsageError(f"the team {self.name!r} has an agent {name!r} already")
        if lead and (self._lead is not None or under is not None):
            raise UsageError("a team has one lead, which is no sub-agent")
        profile = Profile(
            name=name,
            model=model,
            description=description,
            items=(*types, *functions, *variables),
            sandbox=sandbox,
            price=price,
            settings=settings,
        )
        member = Member(profile, self._ground, under)
        self._members[name] = member
        if under is not None:
            under.members.append(member)
        if lead:
            self._lead = member
        return member

    @property
    def members(self) -> Mapping[str, Member]:
        """The agents that were added, by name."""
        return MappingProxyType(self._members)

    def __getitem__(self, name: str) -> Member:
        """The agent of that name. Raises UnknownTeamNameError."""
        if not isinstance(name, str) or name not in self._members:
            raise UnknownTeamNameError("agent", name, tuple(self._members))
        return self._members[name]

    # -- work --

    async def run(self, task: str) -> AgentResponse:
        """Set the lead to work, with all agents that have no parent as its sub-agents.

        Raises what `CaveAgent.run` raises, BudgetExceededError, and WeakerSandboxError if one of them may do more
        than the lead.
        """
        return await self._led().run(task, place="lead")

    async def stream_events(self, work: str | Work, *inputs: object) -> AsyncGenerator[TeamEvent, None]:
        """What all agents do while the lead does a task, or the team a plan; raises what `run` raises.

        Closing the iterator ends the work.
        """
        events: asyncio.Queue[TeamEvent | None] = asyncio.Queue()
        with self._ground.broadcast.heard_by(events.put_nowait):
            running = asyncio.ensure_future(self._any_work(work, inputs))
            running.add_done_callback(lambda _: events.put_nowait(None))
            try:
                while (event := await events.get()) is not None:
                    yield event
                await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    @contextmanager
    def heard_by(self, listener: Callable[[TeamEvent], None]) -> Iterator[None]:
        """While the block lasts, `listener` hears what all agents do. It must not block."""
        with self._ground.broadcast.heard_by(listener):
            yield

    async def _any_work(self, work: str | Work, inputs: Sequence[object]) -> AgentResponse | Outcome:
        return await work.run(*inputs) if isinstance(work, Work) else await self.run(work)

    def _led(self) -> Member:
        lead = self._lead or next(iter(self._members.values()), None)
        if lead is None:
            raise UsageError(f"the team {self.name!r} has no agents; add one")
        others = [other for other in self._members.values() if other is not lead and other.parent is None]
        for other in others:
            lead.check_below(other)
        for other in others:
            other.parent = lead
            lead.members.append(other)
        self._lead = lead
        return lead

    async def prepare(self) -> None:
        """Puts into all namespaces what their agents were given. Else that is done when each is first needed."""
        for member in tuple(self._members.values()):
            await member.prepare()

    # -- what they share --

    @property
    def variables(self) -> TeamVariables:
        """References under names that each agent's code can get at, as `team`."""
        return self._ground.variables

    @property
    def reader(self) -> ReferenceReader:
        """Shows pieces of what references stand for, as text."""
        return self._ground.reader

    @property
    def spent(self) -> Amount:
        """What model calls have cost so far."""
        return self._ground.treasury.spent

    @property
    def remaining(self) -> Remaining:
        """What is left of the budget, reservations of calls under way taken off."""
        return self._ground.treasury.remaining()

    @property
    def state(self) -> TeamState:
        """Everything that is known of the team, values excepted.

        Reservations of calls under way are taken as spent: after a crash their outcome is not known.
        """
        spent, store = self._ground.treasury.committed, self._references
        return TeamState(
            team=self.name,
            tokens=spent.tokens,
            nanodollars=spent.nanodollars,
            agents=tuple(map(_agent_state, self._members.values())),
            steps=self._ground.progress.steps,
            variables=tuple(
                VariableState(
                    name=variable.name,
                    version=variable.version,
                    author=variable.author,
                    reference=described(variable.reference, store),
                )
                for variable in self.variables.newest()
            ),
        )

    def _changed(self) -> None:
        if self._on_state is not None:
            self._on_state(self.state)

    def _restore_variables(self, before: TeamState) -> None:
        for old in before.variables:
            reference = self._references.find(old.reference.id)
            self.variables.restore(old.name, old.version, reference, old.author)

    # -- life --

    async def close(self) -> None:
        """Ends all runtimes. Closing twice is fine."""
        for member in self._members.values():
            await member.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _agent_state(member: Member) -> AgentState:
    parent = "" if member.parent is None else member.parent.name
    return AgentState(name=member.name, model=member.model_id, parent=parent)
