"""The agent: a model that works by writing code for a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cenote.agent import prompts
from cenote.agent.core import AgentCore, CoreSettings
from cenote.agent.driver import Run, World
from cenote.agent.errors import AgentBusyError
from cenote.agent.events import Event
from cenote.agent.kept_outputs import KeptOutputs
from cenote.agent.log import AgentLog, LogLevel
from cenote.agent.port import HasPort, PatchableRuntime, SubAgent
from cenote.agent.response import AgentResponse
from cenote.agent.skill_activation import SkillActivation
from cenote.agent.system_prompt import PromptParts
from cenote.models import Message, Model
from cenote.skills import Skill, SkillDiscovery
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds


class CaveAgent(SubAgent):
    """A model that operates a persistent namespace.

    The model answers in text or with a block of code; a block runs in the runtime and what it printed goes back to
    the model, until it gives its final answer: a text without a block, or `reply(text)` called by a block that
    succeeds. Further tasks continue the conversation. A block ends the model's turn: what it writes after one is
    cut off, since it can only make up the output.

    model: who writes the code.
    runtime: where it runs; by default a `PythonRuntime` of the agent's own, made when first needed.
    max_steps: turns of the model per task that run a block or give the final answer.
    max_history: messages kept, the system prompt included; None keeps all. The current task is always kept.
    max_exec_output: characters of a block's output that the model is shown; of more it sees head and tail, and reads
        the rest from the namespace.
    max_exec_timeout: seconds for one block; None leaves it to the runtime's policy.
    context_window: tokens of the model's window; the conversation is compacted before it fills it.
    skills, skills_dir: skills, and directories of them, that the model may activate.
    instructions: who the agent is. system_instructions: how it works; `{python_block_identifier}` is replaced.
    system_prompt_template: the whole, with `{instructions}`, `{system_instructions}` and either `{context}` (all
        that the runtime holds, with headings) or `{functions}`, `{variables}`, `{types}`, `{skills}`; also
        `{current_time}` (which spoils a provider's prompt cache) and `{python_block_identifier}`.
    python_block_identifier: info string of the blocks that are code.
    messages: an earlier conversation to continue; system messages in it are left out.
    on_error: what becomes of what a failing block did; `keep` is the only choice.
    log_level: how much goes to the log `cenote.agent`.
    namespace_delta: whether the model is told after each block which variables it added, rebound and removed.
    patches: whether the model may change steps that have run, with a block in the language `patch`; it is told then
        where the values of a failing step came from. What depends on a change is run again, all else is kept.
    on_event: called with each event, also of tasks that another agent's code has set.

    Raises UsageError for settings that make no sense, SkillError for a malformed skill.
    """

    def __init__(
        self,
        model: Model,
        runtime: HasPort | None = None,
        *,
        max_steps: int = 10,
        max_history: int | None = None,
        max_exec_output: int = 5000,
        max_exec_timeout: float | None = None,
        context_window: int = 128_000,
        skills: Iterable[Skill] | None = None,
        skills_dir: str | Path | Iterable[str | Path] | None = None,
        instructions: str = prompts.DEFAULT_INSTRUCTIONS,
        system_instructions: str = prompts.DEFAULT_SYSTEM_INSTRUCTIONS,
        system_prompt_template: str = prompts.DEFAULT_SYSTEM_PROMPT_TEMPLATE,
        python_block_identifier: str = "python",
        messages: Sequence[Message] | None = None,
        on_error: Literal["keep"] = "keep",
        log_level: LogLevel = LogLevel.DEBUG,
        namespace_delta: bool = False,
        patches: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        _check(model, runtime, on_error, max_exec_timeout, messages or ())
        self.model = model
        self._runtime = runtime
        self._timeout = max_exec_timeout
        self._patches = patches
        self._outputs = KeptOutputs()
        self._skills = SkillActivation([*(skills or ()), *_discovered(skills_dir)])
        self._log = AgentLog(LogLevel(log_level))
        self._on_event = on_event
        self._busy = False
        prompt = PromptParts(
            instructions=instructions,
            system_instructions=system_instructions,
            template=system_prompt_template,
            python_block_identifier=python_block_identifier,
            patches=patches,
        )
        settings = CoreSettings(
            prompt=prompt,
            has_skills=self._skills.any,
            max_steps=max_steps,
            max_history=max_history,
            max_exec_output=max_exec_output,
            context_window=context_window,
            namespace_delta=namespace_delta,
            patches=patches,
        )
        self._core = AgentCore(settings, _counter(model), tuple(messages or ()))

    @property
    def runtime(
        self,
    ) -> Any:  # the very object that was given, with all the methods that its user knows it by
        """The runtime; made now if none was given and none was needed so far."""
        if self._runtime is None:
            from cenote.runtime import PythonRuntime

            self._runtime = PythonRuntime()
        return self._runtime

    @property
    def messages(self) -> list[Message]:
        """A copy of the conversation as the model gets it."""
        return list(self._core.messages)

    @property
    def variable_names(self) -> tuple[str, ...]:
        return () if self._runtime is None else tuple(v.name for v in self._runtime.port.variables)

    async def run(self, task: str) -> AgentResponse:
        """Work on a task until it is done.

        Cancelling ends the model call or the block that runs; the conversation and the namespace stay as they are.

        Raises AgentBusyError during another task; `ModelError` when the model fails for good.
        """
        run = self._start(task)
        async with aclosing(self._events(run, task)) as events:
            async for _ in events:
                pass
        assert run.response is not None, "a run whose events came to their end has a response"
        return run.response

    async def stream_events(self, task: str) -> AsyncGenerator[Event, None]:
        """The same as it happens. Closing the iterator ends the work as cancelling `run` does."""
        async with aclosing(self._events(self._start(task), task)) as events:
            async for event in events:
                yield event

    def run_sync(self, task: str) -> AgentResponse:
        """`run` for a program without an event loop.

        Raises UsageError inside of a running one.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(task))
        raise UsageError("run_sync cannot wait inside a running event loop; write `await agent.run(task)`")

    def _start(self, task: str) -> Run:
        if not isinstance(task, str) or not task.strip():
            raise UsageError(f"a task is a text, not {task!r}")
        if self._busy:
            raise AgentBusyError
        if self._patches and not isinstance(self.runtime.port, PatchableRuntime):
            raise UsageError(f"the history of a {type(self.runtime).__name__} cannot be patched")
        world = World(
            model=self.model,
            runtime=self.runtime.port,
            outputs=self._outputs,
            skills=self._skills,
            cell_timeout=self._timeout,
        )
        return Run(self._core, world)

    async def _events(self, run: Run, task: str) -> AsyncGenerator[Event, None]:
        self._busy = True
        try:
            async with aclosing(run.events(task)) as events:
                async for event in events:
                    self._log.event(event)
                    if self._on_event is not None:
                        self._on_event(event)
                    yield event
        finally:
            self._busy = False


def _check(
    model: object, runtime: object, on_error: str, timeout: float | None, messages: Sequence[object]
) -> None:
    if not callable(getattr(model, "stream", None)):
        raise UsageError(f"an agent needs a model, such as LiteLLMModel(...), not {type(model).__name__}")
    if runtime is not None and not isinstance(runtime, HasPort):
        raise UsageError(
            f"an agent works in a PythonRuntime or AsyncPythonRuntime, not {type(runtime).__name__}"
        )
    if on_error != "keep":
        raise UsageError(f'on_error={on_error!r} is not supported; "keep" leaves what a failing block did')
    check_seconds(timeout, "max_exec_timeout")
    for message in messages:
        if not isinstance(message, Message):
            raise UsageError(f"messages are cenote.models.Message objects, not {type(message).__name__}")


def _discovered(folders: str | Path | Iterable[str | Path] | None) -> list[Skill]:
    paths = [folders] if isinstance(folders, str | Path) else list(folders or ())
    return [skill for path in paths for skill in SkillDiscovery.from_directory(path)]


def _counter(model: Model) -> Callable[[str], int]:
    from cenote.tokens import count_tokens

    return partial(count_tokens, model_id=getattr(model, "model_id", None))
