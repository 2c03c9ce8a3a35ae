"""One message of a conversation with a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from cenote_security.errors import UsageError

Role = Literal["system", "user", "assistant"]

MessageKind = Literal["task", "answer", "code", "output", "note", "summary"]
"""What a part of an agent's conversation is for: what was asked, the answer, a block of code and what it gave, what
the agent says to the model by itself, and what stands for parts that were left out."""


@dataclass(frozen=True, slots=True)
class Message:
    """Who said what. Text only: values stay in the runtime, a model sees what was printed of them.

    kind: what it is for, in the conversation of an agent; no model is sent it, and it makes no difference between
        messages. None where that is not known: an agent takes a user's message for a task and others for answers.

    Raises UsageError for another role than `system`, `user` or `assistant`, another kind than those of MessageKind,
    or content that is not text.
    """

    role: Role
    content: str
    kind: MessageKind | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise UsageError(f"the role of a message is system, user or assistant, not {self.role!r}")
        if not isinstance(self.content, str):
            raise UsageError(f"the content of a message is text, not {type(self.content).__name__}")
        if self.kind is not None and self.kind not in get_args(MessageKind):
            kinds = ", ".join(get_args(MessageKind))
            raise UsageError(f"the kind of a message is one of {kinds}, not {self.kind!r:.100}")

    @classmethod
    def system(cls, content: str) -> Message:
        return cls("system", content)

    @classmethod
    def user(cls, content: str) -> Message:
        return cls("user", content)

    @classmethod
    def assistant(cls, content: str) -> Message:
        return cls("assistant", content)
