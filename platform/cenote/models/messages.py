"""One message of a conversation with a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cenote_security.errors import UsageError

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """Who said what. Text only: values stay in the runtime, a model sees what was printed of them.

    Raises UsageError for another role than `system`, `user` or `assistant`, or content that is not text.
    """

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise UsageError(f"the role of a message is system, user or assistant, not {self.role!r}")
        if not isinstance(self.content, str):
            raise UsageError(f"the content of a message is text, not {type(self.content).__name__}")

    @classmethod
    def system(cls, content: str) -> Message:
        return cls("system", content)

    @classmethod
    def user(cls, content: str) -> Message:
        return cls("user", content)

    @classmethod
    def assistant(cls, content: str) -> Message:
        return cls("assistant", content)
