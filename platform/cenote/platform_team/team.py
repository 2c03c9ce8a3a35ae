"""A script's interface to a team whose loop runs on a platform, and what the platform reports about it.

The team continues when the script has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeVar

from cenote.plans import Plan
from cenote.runtime.inject.references import ObjectReference
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import new_key
from cenote.runtime.remote.environments import with_built_environment
from cenote.runtime.remote.team_client import TeamClient
from cenote.team.budget import Budget
from cenote_proto.scalars import make, put, utf8_text, utf8_texts
from cenote_proto.v1 import team_pb2
from cenote_security.errors import CenoteError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.wire import option_messages, policies

RunState = Literal["waiting", "running", "done", "failed", "cancelled"]

_STATES: Final[tuple[RunState, ...]] = ("waiting", "running", "done", "failed", "cancelled")
"""In the order of their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamNews:
    """An event in a team. number: where to follow from.

    agent, type, content: as in a TeamEvent; without an agent the event is about the run, and the type is `started`,
    `resumed`, `restarted`, `done`, `failed` or `cancelled`. at: seconds since the epoch.
    """

    number: int
    at: float
    run: int
    agent: str
    type: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRun:
    """A run of a team. answer: the last words; status: how a lead came to them, as in an AgentResponse.

    references: results of a plan's steps; the platform keeps them for an hour. error: why it failed. task: for the
    lead. Times are seconds since the epoch, 0 for not yet.
    """

    number: int
    state: RunState
    answer: str = ""
    status: str = ""
    references: tuple[ObjectReference, ...] = ()
    error: str = ""
    task: str = ""
    created: float = 0.0
    started: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamValue:
    """A shared value as a team knows it. id: of its reference. size: bytes."""

    id: str
    type: str
    shape: tuple[int, ...] = ()
    size: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus:
    """A step of the current plan, or of the last one.

    inputs: ids of references that it got; digests of plain values, or empty. output: what it has handed on, if any.
    """

    agent: str
    task: str
    status: str
    error: str
    inputs: tuple[str, ...] = ()
    output: TeamValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamVariableStatus:
    """The newest version of a variable that all members have. author: the agent that has set it."""

    name: str
    version: int
    author: str
    value: TeamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamStatus:
    """runs: newest first. tokens, cost: of all of them, in US dollars. newest: number of the last event.

    starts: processes that have worked on it; more than a run needs when they were killed. budget: for all that it
    ever does. models: of the members, by name.
    """

    id: str
    name: str
    members: tuple[str, ...]
    runs: tuple[TeamRun, ...]
    steps: tuple[StepStatus, ...]
    tokens: int
    cost: float
    newest: int
    starts: int
    budget: Budget | None = None
    variables: tuple[TeamVariableStatus, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)


class TeamRunError(CenoteError):
    """A run of a platform's team has failed or was cancelled. run: its state."""

    def __init__(self, run: TeamRun) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        ended = "failed" if self.run.state == "failed" else f"was {self.run.state}"
        return f"run {self.run.number} of the team {ended}" + (
            f": {self.run.error}" if self.run.error else ""
        )


def news_of(message: team_pb2.TeamNews) -> TeamNews:
    return TeamNews(
        number=message.number,
        at=message.at,
        run=message.run,
        agent=message.agent,
        type=message.type,
        content=message.content,
    )


def run_of(message: team_pb2.TeamRun, references: tuple[ObjectReference, ...] = ()) -> TeamRun:
    """references: to the results of its steps, held for this client."""
    return TeamRun(
        number=message.number,
        state=_STATES[message.state] if message.state < len(_STATES) else "failed",
        answer=message.answer,
        status=message.status,
        references=references,
        error=message.error,
        task=message.task,
        created=message.created,
        started=message.started,
        ended=message.ended,
    )


def _value(message: team_pb2.TeamValue) -> TeamValue:
    return TeamValue(
        id=message.id,
        type=message.type,
        shape=tuple(message.shape),
        size=message.size,
        description=message.description,
    )


def _step(message: team_pb2.StepProgress) -> StepStatus:
    return StepStatus(
        agent=message.agent,
        task=message.task,
        status=message.status,
        error=message.error,
        inputs=tuple(message.inputs),
        output=_value(message.output) if message.HasField("output") else None,
    )


def status_of(message: team_pb2.TeamDescription) -> TeamStatus:
    """A team as the platform describes it."""
    return TeamStatus(
        id=message.id,
        name=message.name,
        members=tuple(member.name for member in message.definition.members),
        runs=tuple(map(run_of, message.runs)),
        steps=tuple(map(_step, message.steps)),
        tokens=message.tokens,
        cost=message.nanodollars / 10**9,
        newest=message.newest_news,
        starts=message.starts,
        budget=option_messages.read_options(Budget, message.definition.budget),
        variables=tuple(
            TeamVariableStatus(
                name=each.name, version=each.version, author=each.author, value=_value(each.value)
            )
            for each in message.variables
        ),
        models={member.name: member.model.name for member in message.definition.members},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as data.

    name: in its server's terms; without a `base_url` a LiteLLM name, such as `anthropic/claude-sonnet-4-5`.
    base_url: of a server with OpenAI's chat completions, which the platform's operator has allowed.
    secret: which of the team's secrets is the key. parameters: such as `{"temperature": 0.2}`.
    script: answers in order, for tests; no server is called.
    """

    name: str = ""
    base_url: str = ""
    secret: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    script: Sequence[str] = ()

    def message(self) -> team_pb2.TeamModel:
        model = make(team_pb2.TeamModel, name=self.name, base_url=self.base_url, secret=self.secret)
        model.parameters = utf8_text(json.dumps(dict(self.parameters))) if self.parameters else ""
        model.script.extend(utf8_texts(self.script))
        if self.script:
            model.kind = team_pb2.TeamModel.SCRIPTED
        elif self.base_url:
            model.kind = team_pb2.TeamModel.OPENAI
        return model


T = TypeVar("T")

PATIENCE: Final = 40.0
"""Seconds for a call to the gateway, which has a shorter deadline of its own."""


class PlatformTeam:
    """Made by `Platform.team`. Nothing is sent before the first call.

    Members are data: a model by its name, instructions, a sandbox. Functions of this process are not possible: the
    process may have ended when they are called.
    """

    def __init__(
        self,
        destination: Destination,
        name: str,
        *,
        budget: Budget | None,
        sandbox: SandboxPolicy | None,
        secrets: Mapping[str, str] | None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"a team of a platform has a name, such as 'pipeline', not {name!r:.100}")
        self.name = name
        self._destination = destination
        self._client = TeamClient(destination)
        self._secrets = dict(secrets or {})
        self._definition = team_pb2.TeamDefinition()
        if sandbox is not None:
            self._definition.sandbox.CopyFrom(
                policies.from_policy(with_built_environment(self._destination, sandbox))
            )
        for limit, value in _limits(budget).items():
            put(self._definition.budget, limit, value)

    def add(
        self,
        name: str,
        *,
        model: str | ModelSpec,
        description: str | None = None,
        sandbox: SandboxPolicy | None = None,
        under: str = "",
        lead: bool = False,
        **settings: Any,
    ) -> Self:
        """Adds a member. The platform gets it when the team is next set to work.

        model: a LiteLLM name, or a ModelSpec. under: the agent whose sub-agent it is. settings: `instructions`,
        `system_instructions`, `max_steps`, `max_history`, `max_exec_output`, `max_exec_timeout`, `context_window`,
        `namespace_delta`, `prompt` and the limits `max_run_time`, `max_total_tokens`, `max_input_tokens`,
        `max_output_tokens`, `max_answer_time`, `max_answer_length`, see CaveAgent; for the rest as
        `cenote.team.Team.add`.

        Raises UsageError, also for functions, objects and models that live in this process.
        """
        if not isinstance(model, str | ModelSpec):
            raise UsageError(
                f"a platform's team works without this process: name the model, or pass a ModelSpec, not a "
                f"{type(model).__name__}"
            )
        spec = ModelSpec(name=model) if isinstance(model, str) else model
        member = make(
            self._definition.members.add,
            name=name,
            model=spec.message(),
            description=description or "",
            under=under,
            lead=lead,
        )
        if sandbox is not None:
            member.sandbox.CopyFrom(policies.from_policy(with_built_environment(self._destination, sandbox)))
        for setting, value in settings.items():
            _set(member.settings, setting, value)
        return self

    # -- work --

    async def run(
        self,
        work: str | Plan,
        *inputs: ObjectReference,
        variables: Mapping[str, ObjectReference] | None = None,
    ) -> TeamRun:
        """Sets the team to work and waits until it is done. The run continues if the caller stops waiting; see
        `cancel`.

        work: a task for the lead, or a plan (`cenote.plans`). inputs: of the plan. variables: for the lead, by name.
        Raises TeamRunError for a run that fails or is cancelled; and refusals of the platform.
        """
        return await self.wait(await self.start(work, *inputs, variables=variables))

    async def start(
        self,
        work: str | Plan,
        *inputs: ObjectReference,
        variables: Mapping[str, ObjectReference] | None = None,
    ) -> int:
        """Starts a run without waiting and returns its number. Raises UsageError, and refusals of the platform."""
        if not isinstance(work, str | Plan):
            raise UsageError(f"a team works on a text, or a plan of cenote.plans, not on {work!r:.100}")
        request = make(team_pb2.StartRunRequest, team=self.name, key=new_key())
        if isinstance(work, Plan):
            request.plan.CopyFrom(work.message())
        else:
            request.task = utf8_text(work)
        request.inputs.extend(utf8_texts(map(self._client.id_of, inputs)))
        for name, reference in (variables or {}).items():
            request.variables[utf8_text(name)] = utf8_text(self._client.id_of(reference))
        if self._definition.members:
            put = make(
                team_pb2.PutTeamRequest, name=self.name, definition=self._definition, secrets=self._secrets
            )
            await _off(self._client.put(put))
        return (await _off(self._client.start(request))).number

    async def wait(self, number: int = 0) -> TeamRun:
        """Waits until a run is over; by default the newest. Raises TeamRunError."""
        ended = await _off(self._client.ended(make(team_pb2.RunName, team=self.name, number=number)))
        run = await self._run(ended)
        if run.state != "done":
            raise TeamRunError(run)
        return run

    async def follow(self, after: int = 0, *, wait: bool = False) -> AsyncGenerator[TeamNews, None]:
        """Past and coming events after the one of that number, to the end of the last run.

        wait: continue waiting for further runs. A broken connection is resumed where it broke.
        """
        queue: asyncio.Queue[TeamNews | BaseException | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: TeamNews | BaseException | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, item)

        following = asyncio.run_coroutine_threadsafe(
            self._client.follow(self.name, after, wait=wait, hear=lambda news: put(news_of(news))),
            background().loop,
        )
        following.add_done_callback(lambda done: put(None if done.cancelled() else done.exception()))
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            following.cancel()

    def news(self, *, after: int = 0, limit: int = 200) -> list[TeamNews]:
        """A page of past events, those after the one of that number.

        Has events of the type `model_call`, too: what a call of a model took. Their content is a JSON object with
        `prompt_tokens`, `completion_tokens`, `nanodollars` (0 without a list price) and `seconds`.
        """
        return [news_of(message) for message in self._ask(self._client.past(self.name, after, limit))]

    # -- other calls --

    def status(self) -> TeamStatus:
        """The team's progress. Raises UnknownEntryError for a team that was never set to work."""
        return status_of(self._ask(self._client.get(self.name)))

    def cancel(self, number: int = 0) -> None:
        """Stops a run, by default the newest; its cells are interrupted."""
        self._ask(self._client.cancel(make(team_pb2.RunName, team=self.name, number=number)))

    def delete(self) -> None:
        """Ends the team's work, and removes the team."""
        self._ask(self._client.delete(self.name))

    def __repr__(self) -> str:
        return f"<PlatformTeam {self.name!r}>"

    async def _run(self, message: team_pb2.TeamRun) -> TeamRun:
        references = [
            await _off(self._client.hold(result.reference, result.info))
            for result in message.results
            if result.reference
        ]
        return run_of(message, tuple(references))

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return background().wait(question, PATIENCE + self._client.wait, "answer")


async def _off(work: Coroutine[Any, Any, T]) -> T:
    """Runs on the loop that has the connections to platforms."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, background().loop))


def _limits(budget: Budget | None) -> dict[str, object]:
    if budget is None:
        return {}
    names = ("tokens", "cost", "agents", "depth", "seconds", "answer")
    return {name: value for name in names if (value := getattr(budget, name)) is not None}


def _set(settings: team_pb2.AgentSettings, name: str, value: object) -> None:
    known = sorted(field.name for field in settings.DESCRIPTOR.fields)
    if name not in known:
        raise UsageError(
            f"a member of a platform's team has no {name!r}: it is data, and what lives in this process cannot be "
            f"called there. There are {', '.join(known)}; for functions use cenote.team.Team, whose loop runs here"
        )
    try:
        if value is not None:
            put(settings, name, value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}={value!r:.100} is no such setting: {error}") from None
