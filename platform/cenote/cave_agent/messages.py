"""Messages of the CaveAgent library, and what they are in Cenote's conversations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from cenote import models
from cenote.models.messages import MessageKind, Role
from cenote_security.errors import UsageError


class MessageRole(str, Enum):  # noqa: UP042 (`str()` of one is as there)
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    CODE_EXECUTION = "code_execution"
    EXECUTION_RESULT = "execution_result"


_WIRE: dict[MessageRole, Role] = {
    MessageRole.SYSTEM: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CODE_EXECUTION: "assistant",
    MessageRole.EXECUTION_RESULT: "user",
}


class Message:
    """A part of the conversation. wire_role: the role that a provider is sent."""

    kind: MessageKind | None = None

    def __init__(self, content: str, role: MessageRole) -> None:
        self.content = content
        self.role = role

    @property
    def wire_role(self) -> str:
        return _WIRE[MessageRole(self.role)]

    def __repr__(self) -> str:
        preview = " ".join(self.content[:40].split())
        return f"{type(self).__name__}({preview!r}{'...' if len(self.content) > 40 else ''})"


class SystemMessage(Message):
    def __init__(self, content: str) -> None:
        super().__init__(content, MessageRole.SYSTEM)


class UserMessage(Message):
    kind: MessageKind | None = "task"

    def __init__(self, content: str) -> None:
        super().__init__(content, MessageRole.USER)


class NoteMessage(UserMessage):
    """What the agent says to the model by itself."""

    kind: MessageKind | None = "note"


class AssistantMessage(Message):
    kind: MessageKind | None = "answer"

    def __init__(self, content: str) -> None:
        super().__init__(content, MessageRole.ASSISTANT)


class SummaryMessage(UserMessage):
    """What stands for parts that were left out. body: the summary itself."""

    kind: MessageKind | None = "summary"

    def __init__(self, content: str, body: str) -> None:
        super().__init__(content)
        self.body = body


class SummaryAcknowledgementMessage(AssistantMessage):
    """The model's answer to a summary, in conversations of that library. Cenote's have none."""


class CodeExecutionMessage(Message):
    kind: MessageKind | None = "code"

    def __init__(self, content: str) -> None:
        super().__init__(content, MessageRole.CODE_EXECUTION)


class ExecutionResultMessage(Message):
    kind: MessageKind | None = "output"

    def __init__(self, content: str) -> None:
        super().__init__(content, MessageRole.EXECUTION_RESULT)


_SURROGATE = re.compile("[\ud800-\udfff]")


def sanitize_surrogates(text: str) -> str:
    """A text that each encoding and JSON can carry: surrogates without their other half become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def to_wire(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Messages as a request carries them."""
    return [{"role": message.wire_role, "content": message.content} for message in messages]


def in_cenote(message: Message | models.Message) -> models.Message:
    """The same for Cenote's agents."""
    if isinstance(message, models.Message):
        return message
    if not isinstance(message, Message):
        raise UsageError(
            f"a message is a UserMessage, an AssistantMessage, ..., not {type(message).__name__}"
        )
    return models.Message(_WIRE[MessageRole(message.role)], message.content, message.kind)


def in_cave_agent(message: models.Message) -> Message:
    """A part of Cenote's conversation as one of that library's."""
    match message.kind, message.role:
        case "code", _:
            return CodeExecutionMessage(message.content)
        case "output", _:
            return ExecutionResultMessage(message.content)
        case "summary", _:
            return SummaryMessage(message.content, message.content)
        case "note", _:
            return NoteMessage(message.content)
        case _, "system":
            return SystemMessage(message.content)
        case _, "assistant":
            return AssistantMessage(message.content)
    return UserMessage(message.content)
