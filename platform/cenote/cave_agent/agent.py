"""The agent of the CaveAgent library: Cenote's, with its settings, events, messages and responses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from cenote import agent as cenote_agent
from cenote.agent.prompt import prompts
from cenote.agent.prompt.observation import NOTHING
from cenote.agent.vocabulary.events import EventType
from cenote.cave_agent import events
from cenote.cave_agent.compaction import DEFAULT_CONTEXT_WINDOW, Compactor
from cenote.cave_agent.events import Event, StatusType, StopReason
from cenote.cave_agent.messages import Message, in_cave_agent, in_cenote
from cenote.cave_agent.models import TokenUsage
from cenote.cave_agent.models import in_cave_agent as usage_in_cave_agent
from cenote.cave_agent.models import in_cenote as model_in_cenote
from cenote.cave_agent.runtime import IPythonRuntime, PreemptibleRuntime
from cenote.cave_agent.skills import Skill, register_skills, skills_in
from cenote.runtime import Injectable, Variable
from cenote.runtime.faces.ipython import notebook_text
from cenote_security.errors import CenoteError, UsageError
from cenote_worker.execution.results import ExecutionResult

_logger = logging.getLogger("cenote.agent")

_NO_TIME = 1e-6
"""Seconds of a run that is given none: it ends before the model is asked."""

_REASONS = {
    cenote_agent.StopReason.COMPLETED: StopReason.COMPLETED,
    cenote_agent.StopReason.REFUSAL: StopReason.COMPLETED,  # what it said in declining is the answer
    cenote_agent.StopReason.MAX_STEPS: StopReason.MAX_STEPS,
    cenote_agent.StopReason.TIMEOUT: StopReason.TIMEOUT,
    cenote_agent.StopReason.BUDGET_EXHAUSTED: StopReason.BUDGET_EXHAUSTED,
    cenote_agent.StopReason.LOOPING: StopReason.LOOPING,
    cenote_agent.StopReason.INCOMPLETE: StopReason.MODEL_ERROR,
    cenote_agent.StopReason.CONTENT_FILTER: StopReason.MODEL_ERROR,
    cenote_agent.StopReason.MODEL_ERROR: StopReason.MODEL_ERROR,
}


@dataclass
class AgentResponse:
    """What a run came to. model_error: what the model failed with, where that ended it."""

    content: str
    stop_reason: StopReason
    steps: int
    elapsed: float
    usage: TokenUsage = field(default_factory=TokenUsage)
    code_snippets: list[str] = field(default_factory=list)
    model_error: str = ""

    @property
    def completed(self) -> bool:
        return self.stop_reason is StopReason.COMPLETED

    def __str__(self) -> str:
        facts = f"stop_reason={self.stop_reason.value}, steps={self.steps}, tokens={self.usage.total_tokens}"
        return f"AgentResponse({facts}, content={self.content})"


async def drain_to_response(stream: AsyncIterator[Event]) -> AgentResponse:
    """Reads events to the end; what they come to."""
    snippets: list[str] = []
    stopped: events.StoppedEvent | None = None
    async for event in stream:
        if isinstance(event, events.CodeEvent):
            snippets.append(event.code)
        elif isinstance(event, events.StoppedEvent):
            stopped = event
    if stopped is None:
        raise RuntimeError("event stream ended without a StoppedEvent")
    return AgentResponse(
        stopped.content,
        stopped.stop_reason,
        stopped.steps,
        stopped.elapsed,
        stopped.usage,
        snippets,
        stopped.model_error,
    )


class CaveAgent:
    """Cenote's agent, with that library's settings and events.

    model: OpenAIModel, LiteLLMModel, a Model of one's own, or any of Cenote's models.
    runtime: an IPythonRuntime or IPyKernelRuntime, or any of Cenote's runtimes; by default one of its own.
    exec_output_preview_chars: of an output longer than max_exec_output the model is shown about so many characters,
        and the name of the variable that has the whole; at least 100.
    stream_idle_timeout: seconds between two pieces of an answer of a Model of one's own. Cenote's have their
        `idle_timeout`.
    system_instructions, system_prompt_template: None are Cenote's, which are shorter than that library's.

    Other settings are as for cenote.CaveAgent. Raises UsageError (a ValueError).
    """

    def __init__(
        self,
        model: Any,
        runtime: Any = None,
        instructions: str = prompts.DEFAULT_INSTRUCTIONS,
        skills: Iterable[Skill] | None = None,
        max_steps: int = 10,
        max_run_time: float | None = None,
        max_exec_output: int = 5000,
        exec_output_preview_chars: int = 2000,
        persisted_output_prefix: str = "_output",
        max_exec_timeout: float | None = None,
        stream_idle_timeout: float | None = 120.0,
        max_total_tokens: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        compactor: Compactor | None = None,
        context_window: int = DEFAULT_CONTEXT_WINDOW,
        system_instructions: str | None = None,
        system_prompt_template: str | None = None,
        python_block_identifier: str = "python",
        messages: Sequence[Message] | None = None,
    ) -> None:
        self._model = model
        self._idle_timeout = stream_idle_timeout
        self._watched = _Watched(IPythonRuntime() if runtime is None else runtime, persisted_output_prefix)
        self._skills = [skill for skill in skills or () if skill is not None]
        if max_exec_timeout is not None and not isinstance(self.runtime, PreemptibleRuntime):
            raise UsageError(f"the cells of a {type(self.runtime).__name__} cannot be ended")
        self.instructions = instructions
        self.max_steps = max_steps
        self.max_run_time = max_run_time
        self.max_exec_output = max_exec_output
        self.max_exec_timeout = max_exec_timeout
        self.stream_idle_timeout = stream_idle_timeout
        self.max_total_tokens = max_total_tokens
        self.max_input_tokens = max_input_tokens
        self.max_output_tokens = max_output_tokens
        self.persisted_output_prefix = persisted_output_prefix
        self.python_block_identifier = python_block_identifier
        self.compactor = compactor or Compactor(model, context_window=context_window)
        self.compactor.adopt_output_reserve(getattr(model, "max_output_tokens", None))
        given = [in_cenote(message) for message in messages or ()]
        self._agent = cenote_agent.CaveAgent(
            model_in_cenote(model, stream_idle_timeout),
            self._watched,
            max_steps=max_steps,
            max_exec_output=max_exec_output,
            max_exec_timeout=max_exec_timeout,
            context_window=self.compactor.context_window,
            skills=skills_in(self._skills, self.runtime),
            instructions=instructions,
            system_instructions=system_instructions,
            system_prompt_template=system_prompt_template or prompts.DEFAULT_SYSTEM_PROMPT_TEMPLATE,
            python_block_identifier=python_block_identifier,
            messages=given,
            max_run_time=None if max_run_time is None else max(max_run_time, _NO_TIME),
            max_total_tokens=max_total_tokens,
            max_input_tokens=max_input_tokens,
            max_output_tokens=max_output_tokens,
            on_model_error="stop",
            compaction=self.compactor.policy(model),
            output_variables=persisted_output_prefix,
            exec_output_preview=max(exec_output_preview_chars, 100),
        )
        register_skills(self._skills, self._agent.skill_functions, self.runtime)

    @property
    def model(self) -> Any:
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        self._agent.model = model_in_cenote(model, self._idle_timeout)
        self._model = model

    @property
    def runtime(self) -> Any:
        return self._watched.runtime

    @runtime.setter
    def runtime(self, runtime: Any) -> None:
        self._watched.runtime = _jailed(runtime)
        register_skills(self._skills, self._agent.skill_functions, runtime)

    def build_system_prompt(self) -> str:
        """The system prompt of a task that would begin now, without variables that code has made."""
        return self._agent.system_prompt()

    @property
    def messages(self) -> list[Message]:
        """A copy of the conversation; `add_message` adds to it."""
        return [in_cave_agent(message) for message in self._agent.transcript]

    @messages.setter
    def messages(self, messages: Iterable[Message]) -> None:
        self._agent.resume(in_cenote(message) for message in messages)

    def add_message(self, message: Message) -> None:
        self._agent.add_message(in_cenote(message))

    async def run(self, query: str) -> AgentResponse:
        """Works on a task. A failure of the model or the runtime is the reason why it ended, not an exception."""
        async with aclosing(self.stream_events(query)) as stream:
            return await drain_to_response(stream)

    async def stream_events(self, query: str) -> AsyncGenerator[Event, None]:
        """The same as it happens, from a UserPromptEvent to a StoppedEvent."""
        yield events.UserPromptEvent(query)
        told = _Telling(self, self._watched)
        try:
            async with aclosing(self._agent.stream_events(query)) as stream:
                async for event in stream:
                    for one in told.of(event):
                        yield one
        except asyncio.CancelledError:
            yield told.stopped(StopReason.CANCELLED)
            raise
        except GeneratorExit:
            raise
        except BaseException as error:
            if isinstance(error, CenoteError) and not isinstance(error, UsageError):
                _logger.exception("the runtime has failed; the run is over")
                yield told.stopped(StopReason.RUNTIME_ERROR)
                return
            yield told.stopped(StopReason.INTERNAL_ERROR)
            raise


class _Telling:
    """Makes that library's events of Cenote's."""

    def __init__(self, agent: CaveAgent, watched: _Watched) -> None:
        self._agent = agent
        self._watched = watched
        self._started = time.monotonic()
        self._thought_since: float | None = None
        self._thoughts = ""
        self._said = ""
        self._messages = 0
        self.steps = 0

    def of(self, event: cenote_agent.Event) -> Iterable[Event]:
        if event.type is EventType.THINKING:
            self._thought_since = self._thought_since or time.monotonic()
            self._thoughts += event.content
            return [events.ThinkingChunkEvent(event.content)]
        return [*self._thought(), *self._others(event)]

    def _thought(self) -> list[Event]:
        """The reasoning is over when something else comes."""
        thoughts, since = self._thoughts, self._thought_since
        self._thoughts, self._thought_since = "", None
        if since is None:
            return []
        return [events.ThinkingEvent(thoughts, int((time.monotonic() - since) * 1000))]

    def _others(self, event: cenote_agent.Event) -> list[Event]:
        match event.type:
            case EventType.TEXT:
                self._said += event.content
                return [events.TextEvent(event.content)]
            case EventType.CODE:
                self.steps += 1
                self._said = ""
                return [events.CodeEvent(event.content)]
            case EventType.SECURITY_ERROR:
                return [events.SecurityErrorEvent(event.content)]
            case EventType.EXECUTION_OUTPUT | EventType.EXECUTION_OUTPUT_EXCEEDED | EventType.EXECUTION_ERROR:
                return self._result()
            case EventType.COMPACTING:
                self._messages = len(self._agent.messages)
                return [events.StatusEvent(StatusType.COMPACTING)]
            case EventType.COMPACTED:
                after = len(self._agent.messages)
                return [events.StatusEvent(StatusType.COMPACTED, before=self._messages, after=after)]
            case EventType.FINAL_RESPONSE:
                self._said = event.content
                return [events.FinalResponseEvent(event.content)]
            case EventType.MAX_STEPS_REACHED:
                self._said = event.content
                return []
            case EventType.STOPPED:
                assert isinstance(event, cenote_agent.StoppedEvent), (
                    "news of this type has a class of its own"
                )
                self.steps = event.steps
                usage = usage_in_cave_agent(event.usage)
                if event.model_error:
                    _logger.error("the model has failed: %s", event.model_error)
                return [self.stopped(_REASONS[event.stop_reason], usage, event.model_error)]
        return []

    def _result(self) -> list[Event]:
        """Of a cell of which there are two pieces of news, the first says all."""
        result, variable = self._watched.take()
        if result is None:
            return []
        lost = result.state == "lost"
        timeout = self._agent.max_exec_timeout
        if timeout is not None and result.error is not None and result.error.reason == "time":
            return [events.ExecutionTimeoutEvent(timeout, lost)]
        text = notebook_text(result) or NOTHING
        return [events.ExecutionResultEvent(text, result.success, variable is not None, variable, lost)]

    def stopped(
        self, reason: StopReason, usage: TokenUsage | None = None, error: str = ""
    ) -> events.StoppedEvent:
        elapsed = time.monotonic() - self._started
        return events.StoppedEvent(self._said, reason, self.steps, elapsed, usage or TokenUsage(), error)


class _Watched:
    """The runtime of an agent. last: what its last cell gave; variable: where the whole output of that is."""

    def __init__(self, runtime: Any, prefix: str) -> None:
        self.runtime = _jailed(runtime)
        self.prefix = prefix
        self.last: ExecutionResult | None = None
        self.variable: str | None = None

    @property
    def port(self) -> Any:
        return _WatchedPort(self.runtime.port, self)

    def whole(self, item: Injectable) -> Injectable:
        """Of a variable that has the last output without the empty lines at its end, the one with all of it."""
        text = notebook_text(self.last) if self.last is not None else ""
        is_output = isinstance(item, Variable) and isinstance(item.value, str) and text.rstrip() == item.value
        return Variable(item.name, text) if is_output else item

    def take(self) -> tuple[ExecutionResult | None, str | None]:
        """The same, once."""
        taken = self.last, self.variable
        self.last = self.variable = None
        return taken


def _jailed(runtime: Any) -> Any:
    """A runtime. Raises UsageError for one that is not Cenote's."""
    if hasattr(runtime, "port"):
        return runtime
    raise UsageError(
        f"an agent works in an IPythonRuntime or IPyKernelRuntime, whose code runs in a jail; what a "
        f"{type(runtime).__name__} runs is held by nothing"
    )


class _WatchedPort:
    def __init__(self, port: Any, watched: _Watched) -> None:
        self._port = port
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def execute(self, code: str, **settings: Any) -> ExecutionResult:
        result: ExecutionResult = await self._port.execute(code, **settings)
        self._watched.last, self._watched.variable = result, None
        return result

    async def inject(self, *items: Injectable) -> None:
        kept = [item for item in items if item.name.startswith(f"{self._watched.prefix}_")]
        await self._port.inject(*map(self._watched.whole, items))
        if kept:
            self._watched.variable = kept[-1].name
