"""One agent of a team: a model, a runtime of its own, and what all agents of the team share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from cenote.agent import AgentResponse, CaveAgent
from cenote.models import Model
from cenote.models.prices import Price, list_price
from cenote.runtime import AsyncPythonRuntime
from cenote.runtime.inject.injectables import Injectable, Variable, check_name
from cenote.team.budget import Budget
from cenote.team.budget_ledger import BudgetLedger
from cenote.team.concurrency import to_its_end
from cenote.team.errors import BudgetExceededError
from cenote.team.events import Broadcast, TeamRecord
from cenote.team.handles import BUDGET_HINT, TEAM_HINT, BudgetHandle, ChildTasks, SubAgentHandle, TeamHandle
from cenote.team.metered_model import Meter, MeteredModel
from cenote.team.progress import TeamProgress
from cenote.team.runtimes import OwnedRuntime, RuntimeFactory
from cenote.team.variables import ReferenceReader, SeenVersions, TeamVariables
from cenote_security.errors import NameExistsError, UsageError, WeakerSandboxError
from cenote_security.policy import SandboxPolicy, weakness


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The arguments of `Team.add`. settings: for CaveAgent."""

    name: str
    model: Model | Callable[[], Model]
    description: str | None = None
    items: tuple[Injectable, ...] = ()
    sandbox: SandboxPolicy | None = None
    price: Price | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # CaveAgent checks them

    def __post_init__(self) -> None:
        check_name(self.name, "agent")
        if not isinstance(self.model, Model) and not callable(self.model):
            raise UsageError(
                f"an agent needs a model, such as LiteLLMModel(...), or a function that makes one, "
                f"not {type(self.model).__name__}"
            )

    def make_model(self) -> Model:
        return self.model if isinstance(self.model, Model) else self.model()

    def price_of(self, model: Model, budget: Budget) -> Price | None:
        """The price of its tokens. Raises UsageError where the budget limits cost and no price is known."""
        if budget.cost is None:
            return self.price
        price = self.price or list_price(model.model_id)
        if price is None:
            raise UsageError(
                f"the team's budget limits cost, and no price is known for {model.model_id!r}, the model of "
                f"{self.name!r}; pass price=Price(prompt=..., completion=...)"
            )
        return price


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One account, one set of variables, one stream of events, one record of progress, one source of runtimes, one
    record of what is done."""

    name: str
    sandbox: SandboxPolicy
    runtimes: RuntimeFactory
    treasury: BudgetLedger
    variables: TeamVariables
    reader: ReferenceReader
    broadcast: Broadcast
    progress: TeamProgress
    record: TeamRecord


class Member:
    """An agent that works for a team. Made by `Team.add`.

    members: its sub-agents, which its code finds in its namespace under their names.
    """

    def __init__(
        self,
        profile: Profile,
        ground: Ground,
        parent: Member | None,
        *,
        name: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.name = name or profile.name
        self.profile = profile
        self.ground = ground
        self.parent = parent
        self.sandbox: SandboxPolicy = profile.sandbox or (parent.sandbox if parent else ground.sandbox)
        self.members: list[Member] = []
        self.meter = meter or Meter()
        self.turn = asyncio.Lock()
        """Held by a step that uses this agent: an agent does one thing at a time."""

        self._holdings = SeenVersions(ground.variables)
        self._preparing = asyncio.Lock()
        self._injected: set[str] = set()
        self._errands = ChildTasks()
        self._copies = count(1)
        if parent is not None:
            parent.check_below(self)
        ground.treasury.hire()
        self._hired = True
        try:
            self._runtime = OwnedRuntime(
                ground.runtimes(self.name, self.sandbox),
                self._holdings.notices,
                partial(ground.record.port, self.name),
            )
            self._agent = self._make_agent()
        except BaseException:
            ground.treasury.retire()
            raise

    def _make_agent(self) -> CaveAgent:
        model = self.profile.make_model()
        price = self.profile.price_of(model, self.ground.treasury.budget)
        metered = MeteredModel(model, self.ground.treasury, self.meter, price)
        tell = partial(self.ground.broadcast.tell, self.name)
        recorded = self.ground.record.model(self.name, metered)
        return CaveAgent(recorded, self._runtime, on_event=tell, **self.profile.settings)

    # -- its place --

    @property
    def level(self) -> int:
        """1 for an agent that is not a sub-agent."""
        return 1 if self.parent is None else self.parent.level + 1

    @property
    def height(self) -> int:
        """Levels of agents from here down, this one included."""
        return 1 + max((member.height for member in self.members), default=0)

    def check_below(self, member: Member) -> None:
        """Whether a member may be a sub-agent of this one.

        Raises WeakerSandboxError if its sandbox allows more than this one's, BudgetExceededError for depth.
        """
        found = weakness(member.sandbox, self.sandbox)
        if found is not None:
            raise WeakerSandboxError(member.name, found.field, found.wanted, found.allowed)
        self.ground.treasury.check_depth(self.level + member.height)

    @property
    def model_id(self) -> str:
        return self._agent.model.model_id

    # -- work --

    @property
    def runtime(self) -> AsyncPythonRuntime:
        """Its runtime. What it was given is there once it was prepared, or has begun its first task."""
        return self._runtime.face

    @property
    def variable_names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.profile.items if isinstance(item, Variable))

    async def prepare(self) -> None:
        """Puts into its namespace, and into those of its sub-agents, what they were given."""
        async with self._preparing:
            for member in self.members:
                await member.prepare()
            missing = [item for item in self._items() if item.name not in self._injected]
            if missing:
                await to_its_end(self._inject(missing))

    async def run(self, task: str, *, place: str = "") -> AgentResponse:
        """Work on a task until it is done; sub-agents that still work for it then are stopped.

        place: of the task, in the team's record.

        Raises what `CaveAgent.run` raises, and BudgetExceededError.
        """
        await self.prepare()
        self.ground.treasury.start()
        async with self._errands.allowed(), self._in_time():
            return await self.ground.record.work(self.name, place, task, self._agent.run)

    async def _inject(self, items: Sequence[Injectable]) -> None:
        names = ", ".join(item.name for item in items)
        await self.ground.record.once(
            self.name,
            "",
            f"inject {names}",
            lambda: self.runtime.inject(*items),
            lambda: self.runtime.core.register(items),
            lambda: self._inject_missing(items),
        )
        self._injected.update(item.name for item in items)

    async def _inject_missing(self, items: Sequence[Injectable]) -> None:
        """Several may take several injections, of which a process that was killed has made some."""
        for item in items:
            try:
                await self.runtime.inject(item)
            except NameExistsError:
                self.runtime.core.register((item,))

    def _items(self) -> list[Injectable]:
        ground, levels = self.ground, self.ground.treasury.budget.depth
        items = list(self.profile.items)
        for member in self.members:
            called = partial(self.ground.record.called, self.name)
            handle = SubAgentHandle(member, self._errands, called)
            items.append(Variable(member.name, handle, member.profile.description))
        team = TeamHandle(self.name, ground.variables, self._holdings, ground.reader)
        items.append(Variable("team", team, TEAM_HINT, host=True))
        if ground.treasury.budget.is_limited:
            budget = BudgetHandle(ground.treasury, None if levels is None else levels - self.level)
            items.append(Variable("budget", budget, BUDGET_HINT, host=True))
        return items

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None, None]:
        self.ground.treasury.check_time()
        limit = asyncio.timeout(self.ground.treasury.seconds_left())
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise BudgetExceededError("seconds") from None
            raise

    # -- more of the kind, and the end --

    @asynccontextmanager
    async def replica(self) -> AsyncGenerator[Member, None]:
        """A further agent made like this one, with sub-agents made like its own, as long as the block lasts."""
        name = f"{self.name}#{next(self._copies)}"
        copy = Member(self.profile, self.ground, self.parent, name=name, meter=self.meter)
        try:
            copy._grow_like(self)
            yield copy
        finally:
            await copy.close()

    def _grow_like(self, other: Member) -> None:
        for member in other.members:
            child = Member(member.profile, self.ground, self, name=member.name, meter=member.meter)
            self.members.append(child)
            child._grow_like(member)

    async def close(self) -> None:
        """Ends its runtime and those of its sub-agents. Closing twice is fine."""
        for member in self.members:
            await member.close()
        if self._hired:
            self._hired = False
            self.ground.treasury.retire()
            await self._runtime.close()
