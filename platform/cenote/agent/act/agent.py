"""The agent: a model that works by writing code for a runtime.

It writes to the log `cenote.agent`; nothing is printed unless the program sets up logging.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from cenote.agent.act.branches import BranchRuntime, TokenAllowance, best_of, branches_of
from cenote.agent.act.driver import DriverContext, Run
from cenote.agent.act.namespace_functions import (
    KeptOutputs,
    OutputVariables,
    SkillActivation,
    StateLabels,
    highest_number,
    is_agents_own,
)
from cenote.agent.decide.compaction import CompactionPolicy
from cenote.agent.decide.core import DEFAULT_WINDOW, MIN_WINDOW, AgentCore, CoreSettings
from cenote.agent.decide.limits import MAX_ANSWER_LENGTH, MAX_ANSWER_TIME, Bounds
from cenote.agent.prompt import prompts
from cenote.agent.prompt.system_prompt import PromptParts, PromptStyle
from cenote.agent.vocabulary.commands import RuntimeDescription
from cenote.agent.vocabulary.events import Event, EventType, StoppedEvent
from cenote.agent.vocabulary.response import AgentBusyError, AgentResponse, StopReason
from cenote.agent.vocabulary.runtime_port import HasPort, PatchableRuntime, SubAgent
from cenote.models import Message, Model
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.faces.final_state import Score, check_score
from cenote.runtime.faces.sync import PythonRuntime
from cenote.runtime.inject.host_function_server import Target
from cenote.runtime.inject.injectables import Function
from cenote.skills import Skill, SkillDiscovery, SkillWarning
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds
from cenote_security.printable import printable
from cenote_worker.execution.results import VariableInfo

_logger = logging.getLogger("cenote.agent")
_logger.addHandler(logging.NullHandler())


class LogLevel(IntEnum):
    """How much is logged: what failed; also how each task ends; also every block with its output."""

    ERROR = 0
    INFO = 1
    DEBUG = 2


_LEVELS = {LogLevel.ERROR: logging.ERROR, LogLevel.INFO: logging.INFO, LogLevel.DEBUG: logging.DEBUG}
_IMPORTANCE = {
    EventType.EXECUTION_ERROR: LogLevel.ERROR,
    EventType.SECURITY_ERROR: LogLevel.ERROR,
    EventType.MAX_STEPS_REACHED: LogLevel.ERROR,
    EventType.FINAL_RESPONSE: LogLevel.INFO,
    EventType.COMPACTED: LogLevel.INFO,
}
_SAID_BEFORE = (StopReason.COMPLETED, StopReason.MAX_STEPS)
"""Ends of which an event before has told."""


def log_event(event: Event, level: LogLevel) -> None:
    """Up to a level; pieces of text never."""
    if event.type is EventType.TEXT or event.type.is_passing:
        return
    importance = _IMPORTANCE.get(event.type, LogLevel.DEBUG)
    if isinstance(event, StoppedEvent) and event.stop_reason not in _SAID_BEFORE:
        importance = LogLevel.ERROR
    if importance <= level:
        _logger.log(_LEVELS[importance], "%s: %s", event.type.value, printable(event.content, lines=True))


_T = TypeVar("_T")


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
    context_window: tokens of the model's window; the conversation is compacted before it fills it. None takes what
        the model's server says, and 128,000 where it says nothing.
    skills, skills_dir: skills, and directories of them, that the model may activate.
    instructions: who the agent is. system_instructions: how it works; `{python_block_identifier}` is replaced. None
        for those of `prompt`.
    system_prompt_template: the whole, with `{instructions}`, `{system_instructions}` and either `{context}` (all
        that the runtime holds, with headings) or `{functions}`, `{variables}`, `{types}`, `{skills}`; also
        `{current_time}` (which spoils a provider's prompt cache) and `{python_block_identifier}`.
    python_block_identifier: info string of the blocks that are code.
    messages: an earlier conversation to continue; system messages in it are left out.
    on_error: what becomes of what a failing block did: `keep`, or `rollback`, where the state is as before the block
        if it could be kept. max_rollbacks: blocks of one task that are taken back so; what later ones did is kept.
    checkpoints: whether the model's code has functions `checkpoint(label)` and `rollback(label)`.
    log_level: how much goes to the log `cenote.agent`.
    namespace_delta: whether the model is told after each block which variables it added, rebound and removed.
    patches: whether the model may change steps that have run, with a block in the language `patch`. It is told how
        when a step fails, when there are some steps, and before a further task; of a failing step it is told where
        its values came from. What depends on a change is run again, all else is kept.
    prompt: `lean` says what a model needs to call what there is: signatures, a sentence of each docstring, fields of
        results by name; `show(T)` has the rest. `full` has whole docstrings, types and defaults of all fields, and
        longer instructions.
    max_run_time: seconds for one task. max_total_tokens, max_input_tokens, max_output_tokens: of all its model calls;
        no call is made, and no answer read on, beyond them. None is no limit.
    max_answer_time, max_answer_length: seconds and characters (reasoning included) of one answer of the model.
    on_model_error: what becomes of a failure of the model that asking again does not mend: it is raised (`raise`), or
        the response says so (`stop`).
    on_event: called with each event, also of tasks that another agent's code has set.
    compaction: when and how a conversation is made shorter that comes near the window's end.
    output_variables: where the rest of a long output is: `_output` for variables `_output_1`, `_output_2`, ... of the
        namespace; None for `read_output(number)`.
    exec_output_preview: characters that the model is shown of an output longer than `max_exec_output`; None for as
        many as that.

    Raises UsageError for settings that make no sense, SkillError for folders in which no skill can be read; one of
    many that cannot is left out with a SkillWarning.
    """

    def __init__(
        self,
        model: Model,
        runtime: HasPort | None = None,
        *,
        max_steps: int = 10,
        max_history: int | None = None,
        max_exec_output: int = 8000,
        max_exec_timeout: float | None = None,
        context_window: int | None = None,
        skills: Iterable[Skill] | None = None,
        skills_dir: str | Path | Iterable[str | Path] | None = None,
        instructions: str = prompts.DEFAULT_INSTRUCTIONS,
        system_instructions: str | None = None,
        system_prompt_template: str = prompts.DEFAULT_SYSTEM_PROMPT_TEMPLATE,
        python_block_identifier: str = "python",
        messages: Sequence[Message] | None = None,
        on_error: Literal["keep", "rollback"] = "keep",
        max_rollbacks: int = 3,
        checkpoints: bool = False,
        log_level: LogLevel = LogLevel.DEBUG,
        namespace_delta: bool = False,
        patches: bool = False,
        prompt: PromptStyle = "lean",
        max_run_time: float | None = None,
        max_total_tokens: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        max_answer_time: float | None = MAX_ANSWER_TIME,
        max_answer_length: int | None = MAX_ANSWER_LENGTH,
        on_model_error: Literal["raise", "stop"] = "raise",
        on_event: Callable[[Event], None] | None = None,
        compaction: CompactionPolicy | None = None,
        output_variables: str | None = None,
        exec_output_preview: int | None = None,
    ) -> None:
        _check(model, runtime, on_error, max_exec_timeout, messages)
        _check_texts(
            instructions=instructions,
            system_instructions="" if system_instructions is None else system_instructions,
            system_prompt_template=system_prompt_template,
            python_block_identifier=python_block_identifier,
        )
        if on_event is not None and not callable(on_event):
            raise UsageError(f"on_event is a function that takes an event, not {on_event!r:.100}")
        if on_model_error not in ("raise", "stop"):
            raise UsageError(f'on_model_error is "raise" or "stop", not {on_model_error!r:.100}')
        if compaction is not None and not isinstance(compaction, CompactionPolicy):
            raise UsageError(f"compaction is a CompactionPolicy, not {type(compaction).__name__}")
        policy = compaction or CompactionPolicy()
        self._summariser = policy.model
        self._bounds = Bounds(
            run_time=max_run_time,
            total_tokens=max_total_tokens,
            input_tokens=max_input_tokens,
            output_tokens=max_output_tokens,
            answer_time=max_answer_time,
            answer_length=max_answer_length,
        )
        self._stops = on_model_error == "stop"
        self.model = model
        self._runtime = runtime
        self._makes_runtime = runtime is None
        self._timeout = max_exec_timeout
        self._reverses = on_error == "rollback" or checkpoints
        self._labels = StateLabels() if checkpoints else None
        self._patches = patches
        self._outputs = _outputs_of(output_variables, messages)
        self._skills = SkillActivation([*_listed(skills, "skills"), *_discovered(skills_dir)])
        self._log_level = _level(log_level)
        self._on_event = on_event
        self._busy = False
        parts = PromptParts(
            instructions=instructions,
            system_instructions=system_instructions,
            template=system_prompt_template,
            python_block_identifier=python_block_identifier,
            prompt=prompt,
        )
        settings = CoreSettings(
            prompt=parts,
            has_skills=self._skills.any,
            max_steps=max_steps,
            max_history=max_history,
            max_exec_output=max_exec_output,
            exec_output_preview=exec_output_preview,
            context_window=DEFAULT_WINDOW if context_window is None else context_window,
            namespace_delta=namespace_delta,
            has_labels=checkpoints,
            max_rollbacks=max_rollbacks if on_error == "rollback" else 0,
            patches=patches,
            bounds=self._bounds,
            stops_on_model_error=self._stops,
            compaction=policy,
        )
        self._asks_window = context_window is None
        self._core = AgentCore(settings, policy.count_tokens or _counter(model), tuple(messages or ()))

    def __repr__(self) -> str:
        return f"<CaveAgent with {self.model!r:.100}, {len(self.messages)} messages>"

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
    def skill_functions(self) -> list[Function]:
        """The host functions by which code reads skills. A task brings them into the runtime."""
        return self._skills.functions

    def system_prompt(self) -> str:
        """What a task would begin with now, without variables that code has made: no jail is asked."""
        port = self.runtime.port
        scene = RuntimeDescription(
            functions=tuple(function for function in port.functions if not is_agents_own(function)),
            variables=tuple(port.variables),
            types=tuple(port.types),
            described=tuple(
                VariableInfo(name=one.name, type=type(one.value).__name__) for one in port.variables
            ),
            skills=self._skills.hints(),
        )
        return self._core.system_prompt(scene, datetime.now())

    @property
    def messages(self) -> list[Message]:
        """A copy of the conversation as the model gets it."""
        return list(self._core.messages)

    @property
    def transcript(self) -> list[Message]:
        """The conversation in its parts: tasks, blocks, outputs, answers, each with its `kind`.

        `CaveAgent(messages=agent.transcript)` goes on with it as this agent does; of `messages`, which joins what one
        side said in turn, the parts cannot be told apart.
        """
        return list(self._core.transcript)

    def add_message(self, message: Message) -> None:
        """Goes on with what was said elsewhere: by the user, or in the model's place.

        Raises AgentBusyError during a task, UsageError for what is no Message.
        """
        if not isinstance(message, Message):
            raise UsageError(f"a message is a cenote.models.Message, not {type(message).__name__}")
        if self._busy:
            raise AgentBusyError
        self._core.add_message(message)

    def resume(self, messages: Iterable[Message]) -> None:
        """Goes on with another conversation, as one that is made with `messages=` does.

        Raises AgentBusyError during a task, UsageError for what are no Messages.
        """
        given = list(messages)
        _check_messages(given)
        if self._busy:
            raise AgentBusyError
        self._core.resume(given)

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
        if _in_event_loop():
            raise UsageError(
                "run_sync cannot wait inside a running event loop; write `await agent.run(task)`"
            )
        # Not where the question raises: each error of the task would then be told as one while handling that.
        return asyncio.run(self.run(task))

    async def branch(
        self,
        task: str,
        n: int = 4,
        *,
        score: Score,
        max_tokens: int | None = None,
        partial: bool = False,
    ) -> AgentResponse:
        """Work on a task n times at once, each time from the present state and conversation, and keep the best.

        Each branch has a copy of the runtime, as `PythonRuntime.fork` makes it. The one whose final state scores
        highest becomes this agent's, its runtime and its conversation, and the response is its own, with all scores;
        the others are closed. A runtime that was given to the agent stays as it was, and open; close both. Events of
        branches go to the log only.

        score: a plain function of the final state, called on a thread. max_tokens: of all branches together; no call
        is made beyond it, and a branch that needs one has failed. partial: as for `fork`.

        Raises BranchesFailedError when no branch comes to a score, and what `fork` raises: nothing has changed then.
        """
        self._check_free(task)
        check_score(score)
        self._busy = True
        try:
            model = self.model if max_tokens is None else TokenAllowance(self.model, max_tokens)
            runtimes = await branches_of(self.runtime, n, partial=partial)
            twins = [self._twin(runtime, model) for runtime in runtimes]
            kept, response = await best_of(twins, task, score)
            await self._become(twins[kept])
            return response
        finally:
            self._busy = False

    def _twin(self, runtime: BranchRuntime, model: Model) -> CaveAgent:
        """This agent as it is now, in a copy of its runtime."""
        twin = copy.copy(self)
        twin.model, twin._runtime, twin._on_event, twin._busy = model, runtime, None, False
        twin._core, twin._outputs, twin._skills = (
            self._core.branch(),
            self._outputs.branch(),
            self._skills.branch(),
        )
        bound: list[tuple[Target, Target]] = [
            (self._outputs.read_output, twin._outputs.read_output),
            (self._skills.activate_skill, twin._skills.activate_skill),
            (self._skills.read_skill_file, twin._skills.read_skill_file),
        ]
        if self._labels is not None:
            # Copies of the process stay in the jail that has made them: a branch has no labels yet.
            twin._labels = labels = StateLabels()
            bound += [(self._labels.checkpoint, labels.checkpoint), (self._labels.rollback, labels.rollback)]
        runtime.core.rebind(bound)
        return twin

    async def _become(self, twin: CaveAgent) -> None:
        """Goes on where the twin is. A runtime that this agent has made for itself is closed."""
        former, makes = self._runtime, self._makes_runtime
        self._runtime, self._makes_runtime = twin._runtime, True
        self._core, self._outputs = twin._core, twin._outputs
        self._skills, self._labels = twin._skills, twin._labels
        if makes and isinstance(former, PythonRuntime | AsyncPythonRuntime):
            await asyncio.to_thread(former.core.close)

    def _start(self, task: str) -> Run:
        self._check_free(task)
        port = self.runtime.port
        world = DriverContext(
            model=self.model,
            runtime=port,
            outputs=self._outputs,
            skills=self._skills,
            cell_timeout=self._timeout,
            reversible=port if self._reverses else None,
            labels=self._labels,
            run_time=self._bounds.run_time,
            answer_time=self._bounds.answer_time,
            catches=self._stops,
            summariser=self._summariser,
        )
        return Run(self._core, world)

    def _check_free(self, task: str) -> None:
        if not isinstance(task, str) or not task.strip():
            raise UsageError(f"a task is a text, not {task!r}")
        if self._busy:
            raise AgentBusyError
        if self._patches and not isinstance(self.runtime.port, PatchableRuntime):
            raise UsageError(f"the history of a {type(self.runtime).__name__} cannot be patched")

    async def _events(self, run: Run, task: str) -> AsyncGenerator[Event, None]:
        self._busy = True
        try:
            await self._fit()
            async with aclosing(run.events(task)) as events:
                async for event in events:
                    log_event(event, self._log_level)
                    if self._on_event is not None:
                        self._on_event(event)
                    yield event
        finally:
            self._busy = False

    async def _fit(self) -> None:
        """Takes the size of the window from the model's server, where it was not set and the server says it."""
        limits = getattr(self.model, "limits", None)
        if not self._asks_window or not callable(limits):
            return
        self._asks_window = False
        window = (await limits()).context_window
        if window is not None and window >= MIN_WINDOW:
            self._core.fit(window)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check(
    model: object, runtime: object, on_error: str, timeout: float | None, messages: Sequence[object] | None
) -> None:
    if not callable(getattr(model, "stream", None)):
        raise UsageError(f"an agent needs a model, such as LiteLLMModel(...), not {type(model).__name__}")
    if runtime is not None and not isinstance(runtime, HasPort):
        raise UsageError(
            f"an agent works in a PythonRuntime or AsyncPythonRuntime, not {type(runtime).__name__}"
        )
    if on_error not in ("keep", "rollback"):
        raise UsageError(f'on_error is "keep" or "rollback", not {on_error!r:.100}')
    check_seconds(timeout, "max_exec_timeout")
    _check_messages(_listed(messages, "messages"))


def _check_messages(messages: Iterable[object]) -> None:
    for message in messages:
        if not isinstance(message, Message):
            raise UsageError(
                f"messages are cenote.models.Message objects, not {type(message).__name__}; "
                f"Message(role, content) makes one"
            )


def _check_texts(**given: object) -> None:
    for name, text in given.items():
        if not isinstance(text, str):
            raise UsageError(f"{name} is a text, not {text!r:.100}")


def _outputs_of(prefix: str | None, messages: Sequence[Message] | None) -> KeptOutputs:
    if prefix is None:
        return KeptOutputs()
    if not isinstance(prefix, str):
        raise UsageError(
            f"output_variables is the beginning of a name, such as '_output', not {prefix!r:.100}"
        )
    return OutputVariables(prefix, highest_number(prefix, (message.content for message in messages or ())))


def _listed(given: Iterable[_T] | None, name: str) -> list[_T]:
    """What a list has that may be left out. Raises UsageError for what is none."""
    if given is not None and not isinstance(given, Iterable):
        raise UsageError(f"{name} is a list, not {given!r:.100}")
    return list(given or ())


def _discovered(folders: str | Path | Iterable[str | Path] | None) -> list[Skill]:
    if isinstance(folders, bytes):
        raise UsageError(f"skills_dir is a path, or a list of paths, not {folders!r:.100}")
    paths = [folders] if isinstance(folders, str | Path) else _listed(folders, "skills_dir")
    found: dict[str, Skill] = {}
    for skill in (skill for path in paths for skill in SkillDiscovery.from_directory(path)):
        if (first := found.setdefault(skill.name, skill)) is not skill:
            also = f"{skill.directory}: name: {skill.name!r} is also that of {first.directory}"
            warnings.warn(f"{also}; this skill is left out", SkillWarning, stacklevel=3)
    return list(found.values())


def _level(given: LogLevel | int) -> LogLevel:
    try:
        return LogLevel(given)
    except ValueError:
        names = ", ".join(f"LogLevel.{level.name}" for level in LogLevel)
        raise UsageError(f"log_level is one of {names}, not {given!r}") from None


def _counter(model: Model) -> Callable[[str], int]:
    from cenote.tokens import approximate_tokens

    return partial(approximate_tokens, model_id=getattr(model, "model_id", None))
