"""Carries out what the core of an agent commands: model calls, cells, injections. Decides nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import uuid4

from cenote.agent.act.namespace_functions import (
    KeptOutputs,
    SkillActivation,
    StateLabels,
    install,
    is_agents_own,
)
from cenote.agent.decide.core import AgentCore
from cenote.agent.decide.limits import RunStoppedError
from cenote.agent.vocabulary.commands import (
    ApplyPlan,
    ArtifactsBuilt,
    BuildArtifacts,
    CellEnded,
    CheckCode,
    Checked,
    Command,
    CommandResult,
    DescribeRuntime,
    Diagnose,
    Diagnosed,
    Emit,
    ExecuteCode,
    KeepOutput,
    ModelFailed,
    NextChunk,
    OutputKept,
    PlanApplied,
    Planned,
    PlanPatch,
    RuntimeDescription,
    Settled,
    SettleLabels,
    SettleSkills,
    StartTurn,
    StopTurn,
    TextDelta,
    Thought,
    TurnEnded,
    TurnStopped,
)
from cenote.agent.vocabulary.events import Event, StoppedEvent
from cenote.agent.vocabulary.response import AgentResponse, StopReason
from cenote.agent.vocabulary.runtime_port import (
    AgentRuntime,
    CopiedRuntime,
    PatchableRuntime,
    ReversibleRuntime,
)
from cenote.models import Message, Model
from cenote.models.base import close, reasoned
from cenote.models.errors import ModelError, ModelResponseError, ModelUnavailableError
from cenote.models.messages import ModelTurn, ReasonedChunk, ReasoningDelta, TurnEnd, ending_of
from cenote.tracing import (
    AGENT_NAME,
    CHAT,
    FINISH_REASONS,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    INVOKE_AGENT,
    MODEL,
    NO_SPAN,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    STEPS,
    STOP_REASON,
    TraceSpan,
    begun,
)
from cenote_security.errors import CenoteError, RejectedError, UnavailableError, UsageError
from cenote_worker.execution.results import ExecutionResult

_NOTHING_DONE = (UsageError, RejectedError, UnavailableError)
"""Of a patch: what a model is told instead of what came of it."""

_GRACE = 2.0
"""Seconds after the run's time is over, for a cell that has its own limit to end in good order."""


class AnswerTimeoutError(ModelUnavailableError):
    """The model's answer took longer than `max_answer_time`."""

    advice = "give the agent a larger max_answer_time, or None"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What an agent acts on. reversible: the runtime, where its states are gone back to. labels: the model's own.

    run_time, answer_time: seconds for a run, and for one answer of the model. catches: whether failures of a model
    that are no ModelError end a run as those do. summariser: who is asked for summaries; None for the model.
    """

    model: Model
    runtime: AgentRuntime
    outputs: KeptOutputs
    skills: SkillActivation
    cell_timeout: float | None
    reversible: ReversibleRuntime | None = None
    labels: StateLabels | None = None
    run_time: float | None = None
    answer_time: float | None = None
    catches: bool = False
    summariser: Model | None = None


class Run:
    """One task. `response` is set when the events have come to their end."""

    def __init__(self, core: AgentCore, world: DriverContext) -> None:
        self._core = core
        self._world = world
        self._stream: AsyncIterator[ReasonedChunk] | None = None
        self._started = self._turn_started = 0.0
        self._span = self._chat = NO_SPAN
        self.response: AgentResponse | None = None

    async def events(self, task: str) -> AsyncGenerator[Event, None]:
        """What happens. Closing this ends the model call; cancelling it also ends the cell that runs."""
        self._started = time.monotonic()
        self._span = self._traced(task)
        flow = self._core.run(task, datetime.now(), self._name())
        happening: CommandResult | None = None
        late = False
        try:
            while True:
                try:
                    command = (
                        flow.throw(RunStoppedError(StopReason.TIMEOUT)) if late else flow.send(happening)
                    )
                except StopIteration as end:
                    response: AgentResponse = end.value
                    break
                happening, late = None, False
                if isinstance(command, Emit):
                    yield command.event
                    continue
                try:
                    with self._span.current():
                        happening = await self._in_time(command)
                except _RunTimeOverError:
                    late = True
            elapsed = time.monotonic() - self._started
            self.response = response = replace(response, elapsed=elapsed)
            self._span.set(STOP_REASON, str(response.stop_reason.value))
            self._span.set(STEPS, response.steps_taken)
            self._span.set(INPUT_TOKENS, response.token_usage.prompt)
            self._span.set(OUTPUT_TOKENS, response.token_usage.completion)
            self._span.content(OUTPUT_MESSAGES, response.content)
            self._span.end()
            yield StoppedEvent(
                response.stop_reason,
                response.steps_taken,
                elapsed,
                response.token_usage,
                response.model_error,
            )
        except BaseException as error:
            for span in (self._chat, self._span):  # one that has ended is left as it is
                span.end(type(error).__name__)
            raise
        finally:
            flow.close()
            await self._close_stream()

    def _traced(self, task: str) -> TraceSpan:
        author = self._world.runtime.author
        attributes = {OPERATION: INVOKE_AGENT, AGENT_NAME: author, MODEL: _name_of(self._world.model)}
        span = begun(f"{INVOKE_AGENT} {author}".rstrip(), attributes)
        span.content(INPUT_MESSAGES, task)
        return span

    def _turn_began(self, model: Model, messages: tuple[Message, ...]) -> None:
        name = _name_of(model)
        self._chat = begun(f"{CHAT} {name}", {OPERATION: CHAT, MODEL: name})
        if messages:
            self._chat.content(INPUT_MESSAGES, messages[-1].content)

    def _turn_ended(self, turn: ModelTurn) -> None:
        self._chat.set(INPUT_TOKENS, turn.usage.prompt)
        self._chat.set(OUTPUT_TOKENS, turn.usage.completion)
        if turn.finish_reason:
            self._chat.set(FINISH_REASONS, [turn.finish_reason])
        self._chat.content(OUTPUT_MESSAGES, turn.text)
        self._chat.end()

    async def _in_time(self, command: Command) -> CommandResult | None:
        """Carries out a command. Raises _RunTimeOverError when the time of the run is over before it is done."""
        if self._world.run_time is None:
            return await self._carry_out(command)
        # A cell is given the time that is left, and ends by itself; what it has come to is worth waiting for.
        grace = _GRACE if isinstance(command, ExecuteCode) else 0.0
        left = self._time_left()
        assert left is not None
        try:
            async with asyncio.timeout(max(left, 0.0) + grace) as limit:
                if left <= 0 and not isinstance(command, KeepOutput):
                    raise _RunTimeOverError
                return await self._carry_out(command)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._close_stream()
            raise _RunTimeOverError from None

    def _time_left(self) -> float | None:
        if self._world.run_time is None:
            return None
        return self._world.run_time - (time.monotonic() - self._started)

    def _name(self) -> str:
        """What nothing else in the history of a runtime is called, and says which model it was."""
        return f"{_name_of(self._world.model)} {uuid4().hex[:8]}"

    async def _carry_out(self, command: Command) -> CommandResult | None:
        runtime = self._world.runtime
        match command:
            case StartTurn(messages, is_summary):
                self._turn_started = time.monotonic()
                model = self._world.summariser if is_summary else None
                model = model or self._world.model
                self._turn_began(model, messages)
                self._stream = _opened(model, messages)
                return None
            case NextChunk():
                return await self._next_chunk()
            case StopTurn():
                await self._close_stream()
                return TurnStopped(self._seconds())
            case CheckCode(code):
                return Checked(tuple(violation.message for violation in runtime.check(code)))
            case ExecuteCode():
                return CellEnded(await self._execute(command))
            case Diagnose() | PlanPatch() | ApplyPlan() | BuildArtifacts():
                return await self._patching(command)
            case DescribeRuntime():
                return await self._look()
            case KeepOutput(cell, text):
                self._world.outputs.keep(cell, text)
                return OutputKept(await self._world.outputs.handle(runtime, cell))
            case SettleSkills():
                return Settled(await self._world.skills.settle())
            case SettleLabels():
                return Settled(await self._settle_labels())
        raise TypeError(f"no command of the core: {command!r}")

    async def _execute(self, cell: ExecuteCode) -> ExecutionResult:
        reversible = self._world.reversible
        limits = [limit for limit in (self._world.cell_timeout, self._time_left()) if limit is not None]
        timeout = max(min(limits), 0.001) if limits else None
        if cell.atomic and reversible is not None:
            return await reversible.execute(
                cell.code, timeout=timeout, on_output=None, cause=cell.cause, on_error="rollback"
            )
        return await self._world.runtime.execute(cell.code, timeout=timeout, on_output=None, cause=cell.cause)

    async def _settle_labels(self) -> tuple[str, ...]:
        labels, reversible = self._world.labels, self._world.reversible
        return await labels.settle(reversible) if labels is not None and reversible is not None else ()

    async def _patching(self, command: Diagnose | PlanPatch | ApplyPlan | BuildArtifacts) -> CommandResult:
        runtime = self._world.runtime
        assert isinstance(runtime, PatchableRuntime), "an agent that may patch was given such a runtime"
        match command:
            case Diagnose(step):
                return Diagnosed(await runtime.diagnose(step))
            case PlanPatch(patch):
                try:
                    return Planned(await runtime.plan(replace(patch, author=self._world.runtime.author)))
                except _NOTHING_DONE as error:
                    return Planned(None, str(error))
            case ApplyPlan(plan):
                try:
                    return PlanApplied(await runtime.apply(plan))
                except _NOTHING_DONE as error:
                    return PlanApplied(None, str(error))
            case BuildArtifacts():
                try:
                    return ArtifactsBuilt(await runtime.build())
                except _NOTHING_DONE as error:
                    return ArtifactsBuilt(None, str(error))

    async def _next_chunk(self) -> CommandResult:
        try:
            with self._chat.current():
                chunk = await self._chunk_in_time()
        except ModelError as error:
            self._chat.end(type(error).__name__)
            await self._close_stream()
            return ModelFailed(error, self._seconds())
        except StopAsyncIteration:
            chunk = None
        except Exception as error:
            if isinstance(error, CenoteError) or not self._world.catches:
                raise
            self._chat.end(type(error).__name__)
            await self._close_stream()
            return ModelFailed(ModelResponseError(f"{type(error).__name__}: {error}"), self._seconds())
        if isinstance(chunk, str):
            return TextDelta(chunk)
        if isinstance(chunk, ReasoningDelta):
            return Thought(chunk.text)
        if isinstance(chunk, ModelTurn):
            self._turn_ended(chunk)
        else:
            self._chat.end(ModelResponseError.__name__)
        await self._close_stream()
        if isinstance(chunk, ModelTurn):
            refused = ending_of(chunk.finish_reason) is TurnEnd.REFUSED
            return TurnEnded(chunk.finish_reason, chunk.usage, self._seconds(), chunk.text if refused else "")
        name, given = type(self._world.model).__name__, type(chunk).__name__
        what = (
            "ended without a ModelTurn"
            if chunk is None
            else f"gave a {given} where text or a ModelTurn belongs"
        )
        return ModelFailed(ModelResponseError(f"{name}.stream {what}"), self._seconds())

    async def _chunk_in_time(self) -> object:
        if self._stream is None:
            return None
        if self._world.answer_time is None:
            return await anext(self._stream)
        left = max(self._world.answer_time - self._seconds(), 0.0)
        try:
            async with asyncio.timeout(left) as limit:
                return await anext(self._stream)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AnswerTimeoutError(
                f"the answer was not there after {self._world.answer_time:g} s"
            ) from None

    def _seconds(self) -> float:
        return time.monotonic() - self._turn_started

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        self._chat.end()  # of a turn that was stopped
        if stream is not None:
            await close(stream)

    async def _look(self) -> RuntimeDescription:
        runtime = self._world.runtime
        skills = await self._world.skills.install(runtime)
        going_back = ""
        if self._world.labels is not None:
            # There from the first state on, and so in each that the model can go back to.
            await install(runtime, self._world.outputs.read_output, "pure")
            going_back = await self._world.labels.install(runtime)
        own = {function.name for function in runtime.functions if is_agents_own(function)}
        described = await runtime.describe()  # which starts the jail, if there is none
        return RuntimeDescription(
            functions=tuple(function for function in runtime.functions if function.name not in own),
            variables=tuple(runtime.variables),
            types=tuple(runtime.types),
            described=tuple(info for info in described if info.name not in own),
            skills=skills,
            going_back=going_back,
            together=runtime.scope if runtime.author else "",
            differing=tuple(runtime.differing) if isinstance(runtime, CopiedRuntime) else (),
        )


class _RunTimeOverError(Exception):
    """`max_run_time` is over."""


def _name_of(model: Model) -> str:
    name: str = getattr(model, "model_id", None) or type(model).__name__
    return name[:200]


def _opened(model: Model, messages: tuple[Message, ...]) -> AsyncIterator[ReasonedChunk]:
    """The answer of a model, which may be of a user's own class."""
    stream = reasoned(model, messages)
    if not hasattr(stream, "__anext__"):
        getattr(stream, "close", str)()  # a coroutine that is never awaited
        raise UsageError(
            f"{type(model).__name__}.stream gave a {type(stream).__name__}; it is `async def` and yields the text, "
            f"and at last ModelTurn(text, finish_reason, usage)"
        )
    return stream
