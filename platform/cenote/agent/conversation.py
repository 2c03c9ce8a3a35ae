"""The conversation as it goes to the model, and how long it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cenote.agent.history import Entry, keep_last, to_messages, to_transcript
from cenote.models.messages import Message
from cenote.models.usage import TokenUsage

_PER_MESSAGE = 4
"""Tokens that a chat format puts around a message, at most, in the formats that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """How many tokens a text has, for the model in use."""

    count: Callable[[str], int]

    def messages(self, messages: Sequence[Message]) -> int:
        return sum(self.count(message.content) + _PER_MESSAGE for message in messages)

    def estimate(self, messages: Sequence[Message], answer: str) -> TokenUsage:
        """The usage of a call that reported none."""
        return TokenUsage(prompt=self.messages(messages), completion=self.count(answer), estimated=True)


class Conversation:
    """What was said so far, and the system prompt.

    max_history: messages to keep, the system prompt included; None for all.
    """

    def __init__(
        self, counter: Counter, entries: tuple[Entry, ...] = (), max_history: int | None = None
    ) -> None:
        self.system = ""
        self.entries = entries
        self._counter = counter
        self._max_entries = None if max_history is None else max_history - 1
        self._counted: dict[str, int] = {}

    def add(self, *entries: Entry) -> None:
        self.entries += entries
        if self._max_entries is not None:
            self.entries = keep_last(self.entries, self._max_entries)

    def discard(self, entries: Sequence[Entry]) -> None:
        """Take out these very entries, where they still are."""
        unwanted = {id(entry) for entry in entries}
        self.entries = tuple(entry for entry in self.entries if id(entry) not in unwanted)

    def messages(self) -> tuple[Message, ...]:
        return to_messages(self.system, self.entries)

    def transcript(self) -> tuple[Message, ...]:
        return to_transcript(self.system, self.entries)

    def exceeds(self, tokens: int) -> bool:
        """Whether the conversation is longer than so many tokens.

        No token is shorter than a byte, so that short conversations need no counting (and no tokenizer).
        """
        texts = self._texts()
        if sum(len(text.encode("utf-8", "replace")) + _PER_MESSAGE for text in texts) <= tokens:
            return False
        return self.tokens() > tokens

    def tokens(self) -> int:
        counts = {text: self._counted.get(text) or self._counter.count(text) for text in self._texts()}
        self._counted = counts
        return sum(counts[text] + _PER_MESSAGE for text in self._texts())

    def _texts(self) -> list[str]:
        return [self.system, *(entry.text for entry in self.entries)]
