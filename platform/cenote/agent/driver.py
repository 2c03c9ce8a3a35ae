"""Carries out what the core of an agent commands: model calls, cells, injections. Decides nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime

from cenote.agent.atomic_cells import execute_atomically
from cenote.agent.core import AgentCore
from cenote.agent.events import Event
from cenote.agent.flow import (
    CellEnded,
    CheckCode,
    Checked,
    Command,
    Emit,
    ExecuteCode,
    Happening,
    KeepOutput,
    Kept,
    Look,
    ModelFailed,
    NextChunk,
    Scene,
    Settled,
    SettleLabels,
    SettleSkills,
    StartTurn,
    StopTurn,
    TextDelta,
    TurnEnded,
    TurnStopped,
)
from cenote.agent.kept_outputs import KeptOutputs
from cenote.agent.namespace_functions import install, is_agents_own
from cenote.agent.port import AgentRuntime, ReversibleRuntime
from cenote.agent.response import AgentResponse
from cenote.agent.skill_activation import SkillActivation
from cenote.agent.state_labels import StateLabels
from cenote.models import Model
from cenote.models.errors import ModelError, ModelResponseError
from cenote.models.turn import ModelChunk, ModelTurn
from cenote_worker.results import ExecutionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What an agent acts on. reversible: the runtime, where its states are gone back to. labels: the model's own."""

    model: Model
    runtime: AgentRuntime
    outputs: KeptOutputs
    skills: SkillActivation
    cell_timeout: float | None
    reversible: ReversibleRuntime | None = None
    labels: StateLabels | None = None


class Run:
    """One task. `response` is set when the events have come to their end."""

    def __init__(self, core: AgentCore, world: World) -> None:
        self._core = core
        self._world = world
        self._stream: AsyncGenerator[ModelChunk, None] | None = None
        self._turn_started = 0.0
        self.response: AgentResponse | None = None

    async def events(self, task: str) -> AsyncGenerator[Event, None]:
        """What happens. Closing this ends the model call; cancelling it also ends the cell that runs."""
        flow = self._core.run(task, datetime.now())
        happening: Happening | None = None
        try:
            while True:
                try:
                    command = flow.send(happening)
                except StopIteration as end:
                    self.response = end.value
                    return
                happening = None
                if isinstance(command, Emit):
                    yield command.event
                else:
                    happening = await self._carry_out(command)
        finally:
            flow.close()
            await self._close_stream()

    async def _carry_out(self, command: Command) -> Happening | None:
        runtime = self._world.runtime
        match command:
            case StartTurn(messages):
                self._turn_started = time.monotonic()
                self._stream = self._world.model.stream(messages)
                return None
            case NextChunk():
                return await self._next_chunk()
            case StopTurn():
                await self._close_stream()
                return TurnStopped(self._seconds())
            case CheckCode(code):
                return Checked(tuple(violation.message for violation in runtime.check(code)))
            case ExecuteCode(code, atomic):
                return CellEnded(await self._execute(code, atomic=atomic))
            case Look():
                return await self._look()
            case KeepOutput(cell, text):
                self._world.outputs.keep(cell, text)
                reader = await install(runtime, self._world.outputs.read_output, "pure")
                return Kept(f"{reader}({cell})")
            case SettleSkills():
                return Settled(await self._world.skills.settle())
            case SettleLabels():
                return Settled(await self._settle_labels())
        raise TypeError(f"no command of the core: {command!r}")

    async def _execute(self, code: str, *, atomic: bool) -> ExecutionResult:
        reversible, timeout = self._world.reversible, self._world.cell_timeout
        if atomic and reversible is not None:
            return await execute_atomically(reversible, code, timeout)
        return await self._world.runtime.execute(code, timeout=timeout, on_output=None)

    async def _settle_labels(self) -> tuple[str, ...]:
        labels, reversible = self._world.labels, self._world.reversible
        return await labels.settle(reversible) if labels is not None and reversible is not None else ()

    async def _next_chunk(self) -> Happening:
        try:
            chunk = await anext(self._stream) if self._stream else None
        except ModelError as error:
            await self._close_stream()
            return ModelFailed(error, self._seconds())
        except StopAsyncIteration:
            chunk = None
        if isinstance(chunk, str):
            return TextDelta(chunk)
        await self._close_stream()
        if isinstance(chunk, ModelTurn):
            return TurnEnded(chunk.finish_reason, chunk.usage, self._seconds())
        name = type(self._world.model).__name__
        return ModelFailed(ModelResponseError(f"{name}.stream ended without a ModelTurn"), self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self._turn_started

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    async def _look(self) -> Scene:
        runtime = self._world.runtime
        skills = await self._world.skills.install(runtime)
        going_back = ""
        if self._world.labels is not None:
            # There from the first state on, and so in each that the model can go back to.
            await install(runtime, self._world.outputs.read_output, "pure")
            going_back = await self._world.labels.install(runtime)
        own = {function.name for function in runtime.functions if is_agents_own(function)}
        return Scene(
            functions=tuple(function for function in runtime.functions if function.name not in own),
            variables=tuple(runtime.variables),
            types=tuple(runtime.types),
            described=tuple(info for info in await runtime.describe() if info.name not in own),
            skills=skills,
            going_back=going_back,
            together=runtime.scope if runtime.author else "",
        )
