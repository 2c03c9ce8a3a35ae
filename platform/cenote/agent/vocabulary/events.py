"""What an agent tells its caller while it works."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from cenote.agent.vocabulary.response import StopReason
from cenote.models.messages import TokenUsage


class EventType(Enum):
    """What kind of news an event is; see `Event.content` for what comes with it."""

    TEXT = "text"
    THINKING = "thinking"
    CODE_DELTA = "code_delta"
    CODE = "code"
    EXECUTION_OUTPUT = "execution_output"
    EXECUTION_ERROR = "execution_error"
    EXECUTION_OUTPUT_EXCEEDED = "execution_output_exceeded"
    SECURITY_ERROR = "security_error"
    PATCH = "patch"
    COMPACTING = "compacting"
    COMPACTED = "compacted"
    FINAL_RESPONSE = "final_response"
    MAX_STEPS_REACHED = "max_steps_reached"
    STOPPED = "stopped"

    @property
    def is_passing(self) -> bool:
        """Whether it only shows that something is under way, and is worth no record."""
        return self in (EventType.THINKING, EventType.CODE_DELTA)


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of news. Each type has a class of its own, so that `match` and `isinstance` tell them apart.

    content: by type:
        text: a piece of the model's prose, as it is written; an answer that had to be asked for again comes again.
        thinking: a piece of what the model writes to itself, where its server or its text tells of it.
        code_delta: a piece of a block, or of a patch, while it is being written, in whole lines.
        code: the whole code of one block, before it is checked and run.
        execution_output, execution_error, execution_output_exceeded: what the model is shown of the block's run;
            when it exceeded `max_exec_output`, that is head and tail. A run that exceeded and failed gives two.
        security_error: the violated rules, one a line; the code did not run.
        patch: the whole text of a patch block, before it is planned; what came of it follows as that of a block does.
        compacting, compacted: how full the context window is; what was done, and the tokens before and after.
        final_response: the answer. max_steps_reached: the last thing the model said.
        stopped: why the run ended, in the words of StopReason; the last event of each run that gives a response.
    """

    type: EventType
    content: str


class _TypedEvent(Event):
    """An event of one type, made of its content."""

    __slots__ = ()
    kind: ClassVar[EventType]

    def __init__(self, content: str) -> None:
        super().__init__(self.kind, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and (self.type, self.content) == (other.type, other.content)

    def __hash__(self) -> int:
        return hash((self.type, self.content))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.content,)


class TextEvent(_TypedEvent):
    kind = EventType.TEXT


class ThinkingEvent(_TypedEvent):
    kind = EventType.THINKING


class CodeDeltaEvent(_TypedEvent):
    kind = EventType.CODE_DELTA


class CodeEvent(_TypedEvent):
    kind = EventType.CODE

    @property
    def code(self) -> str:
        return self.content


class ExecutionOutputEvent(_TypedEvent):
    kind = EventType.EXECUTION_OUTPUT


class ExecutionErrorEvent(_TypedEvent):
    kind = EventType.EXECUTION_ERROR


class ExecutionOutputExceededEvent(_TypedEvent):
    kind = EventType.EXECUTION_OUTPUT_EXCEEDED


class SecurityErrorEvent(_TypedEvent):
    kind = EventType.SECURITY_ERROR


class PatchEvent(_TypedEvent):
    kind = EventType.PATCH


class CompactingEvent(_TypedEvent):
    kind = EventType.COMPACTING


class CompactedEvent(_TypedEvent):
    kind = EventType.COMPACTED


class FinalResponseEvent(_TypedEvent):
    kind = EventType.FINAL_RESPONSE


class MaxStepsReachedEvent(_TypedEvent):
    kind = EventType.MAX_STEPS_REACHED


class StoppedEvent(_TypedEvent):
    """The end of a run. steps: how many it took. elapsed: seconds. usage: tokens of all its model calls.

    model_error: what the model failed with, as type and message, where that ended it.
    """

    __slots__ = ("elapsed", "model_error", "steps", "stop_reason", "usage")
    kind = EventType.STOPPED

    def __init__(
        self, stop_reason: StopReason, steps: int, elapsed: float, usage: TokenUsage, model_error: str = ""
    ) -> None:
        super().__init__(stop_reason.value)
        for name, value in (
            ("stop_reason", stop_reason),
            ("steps", steps),
            ("elapsed", elapsed),
            ("usage", usage),
            ("model_error", model_error),
        ):
            object.__setattr__(self, name, value)

    stop_reason: StopReason
    steps: int
    elapsed: float
    usage: TokenUsage
    model_error: str

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.stop_reason, self.steps, self.elapsed, self.usage, self.model_error)


_CLASSES = {kind.kind: kind for kind in _TypedEvent.__subclasses__() if kind is not StoppedEvent}


def news(type: EventType, content: str) -> Event:
    """An event of the class that belongs to its type."""
    return _CLASSES[type](content)
