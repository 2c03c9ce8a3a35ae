"""A language for conversations: what the core of an agent receives, and the commands it gives."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cenote.agent.decide.core import AgentCore, CoreSettings
from cenote.agent.vocabulary.commands import (
    CellEnded,
    CheckCode,
    Checked,
    Command,
    CommandResult,
    DescribeRuntime,
    Emit,
    ExecuteCode,
    KeepOutput,
    ModelFailed,
    NextChunk,
    OutputKept,
    RuntimeDescription,
    Settled,
    SettleLabels,
    SettleSkills,
    StartTurn,
    StopTurn,
    TextDelta,
    TurnEnded,
    TurnStopped,
)
from cenote.agent.vocabulary.events import Event
from cenote.agent.vocabulary.response import AgentResponse
from cenote.models.messages import Message, TokenUsage
from cenote_security.errors import CenoteError
from cenote_worker.execution.results import ErrorInfo, ExecutionResult, VariableInfo

NOW = datetime(2026, 11, 3, 12, 30)
USAGE = TokenUsage(prompt=100, cached=60, completion=10)


def words(text: str) -> int:
    """A tokenizer that counts words, which is enough for tests."""
    return len(text.split())


@dataclass(frozen=True)
class Says:
    """A turn of the model: its text in pieces, and the finish reason."""

    text: str
    finish_reason: str | None = "stop"
    fails: CenoteError | None = None
    size: int = 5

    def happenings(self) -> list[CommandResult]:
        pieces = [self.text[i : i + self.size] for i in range(0, len(self.text), self.size)]
        end = ModelFailed(self.fails, 1.0) if self.fails else TurnEnded(self.finish_reason, USAGE, 1.0)
        return [*map(TextDelta, pieces), end]


@dataclass
class Playbook:
    """Plays the environment: answers each command of the core from lists in the test.

    says: the model's turns, in order. cells: results of the cells, in order; an empty result if none are left.
    """

    says: Iterable[Says | str]
    cells: Iterable[ExecutionResult] = ()
    violations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    scene: RuntimeDescription = field(default_factory=RuntimeDescription)
    scenes: Iterable[RuntimeDescription] = ()
    settled: Iterable[tuple[str, ...]] = ()
    events: list[Event] = field(default_factory=list)
    prompts: list[tuple[Message, ...]] = field(default_factory=list)
    labelled: Iterable[tuple[str, ...]] = ()
    executed: list[str] = field(default_factory=list)
    atomic: list[bool] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    stopped: int = 0

    def __post_init__(self) -> None:
        self._turns = iter([turn if isinstance(turn, Says) else Says(turn) for turn in self.says])
        self._results = iter(self.cells)
        self._scenes = iter(self.scenes)
        self._settled = iter(self.settled)
        self._labelled = iter(self.labelled)
        self._answer: list[CommandResult] = []

    def run(self, core: AgentCore, task: str = "the task") -> AgentResponse:
        flow = core.run(task, NOW)
        happening: CommandResult | None = None
        while True:
            try:
                command = flow.send(happening)
            except StopIteration as end:
                return end.value
            happening = self._react(command)

    def _react(self, command: Command) -> CommandResult | None:
        match command:
            case Emit(event):
                self.events.append(event)
            case StartTurn(messages):
                self.prompts.append(messages)
                self._answer = next(self._turns).happenings()
            case NextChunk():
                return self._answer.pop(0)
            case StopTurn():
                self.stopped += 1
                return TurnStopped(0.5)
            case CheckCode(code):
                return Checked(self.violations.get(code, ()))
            case ExecuteCode(code, atomic):
                self.executed.append(code)
                self.atomic.append(atomic)
                return CellEnded(next(self._results, ExecutionResult(success=True)))
            case KeepOutput(cell, text):
                self.kept.setdefault(cell, text)
                return OutputKept(f"read_output({cell})")
            case SettleSkills():
                return Settled(next(self._settled, ()))
            case SettleLabels():
                return Settled(next(self._labelled, ()))
            case DescribeRuntime():
                return next(self._scenes, self.scene)
        return None

    def of(self, kind: str) -> list[str]:
        """Contents of the events of a kind."""
        return [event.content for event in self.events if event.type.value == kind]

    @property
    def last_prompt(self) -> str:
        """The last prompt that the model got."""
        return self.prompts[-1][-1].content


def core(**settings: Any) -> AgentCore:
    return AgentCore(CoreSettings(**settings), words)


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def printed(text: str, **fields: Any) -> ExecutionResult:
    return ExecutionResult(success=True, stdout=text, **fields)


def failed(type: str, message: str, **fields: Any) -> ExecutionResult:
    return ExecutionResult(success=False, error=ErrorInfo(type=type, message=message), **fields)


def scene(*names: str) -> RuntimeDescription:
    return RuntimeDescription(described=tuple(VariableInfo(name=name, type="int") for name in names))


def drive(
    flow: Generator[Command, CommandResult | None, Any], *happenings: CommandResult | None
) -> list[Command]:
    """The commands of a flow with these answers; the flow is closed afterwards."""
    commands = []
    try:
        commands.append(flow.send(None))
        for happening in happenings:
            commands.append(flow.send(happening))
    except StopIteration:
        pass
    finally:
        flow.close()
    return commands
