"""The conversation of an agent: its entries, with what each is for, as messages for the model, and their length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import get_args

from cenote.models.messages import Message, MessageKind, Role, TokenUsage


class Kind(Enum):
    """What a part of the conversation is for."""

    TASK = "task"
    ANSWER = "answer"
    CODE = "code"
    OUTPUT = "output"
    NOTE = "note"
    SUMMARY = "summary"


MAX_BRIEF = 100
"""Characters of the short form of a block or its output."""

_FROM_MODEL = frozenset({Kind.ANSWER, Kind.CODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry:
    """One part.

    cell: for code and its output, the number under which the full output is kept; else 0.
    brief: for code and its output, a short form for when there is no room for the whole.
    """

    kind: Kind
    text: str
    cell: int = 0
    brief: str = ""

    @property
    def role(self) -> Role:
        return "assistant" if self.kind in _FROM_MODEL else "user"


def from_messages(messages: Iterable[Message], blocks: int = 0) -> tuple[ConversationEntry, ...]:
    """Entries of an earlier conversation. System messages are left out: an agent writes its own.

    blocks: how many blocks have numbers by now; those of the messages are numbered from there on.
    """
    entries = []
    for message in messages:
        if message.role == "system":
            continue
        kind = _kind_of(message)
        blocks += kind is Kind.CODE
        in_exchange = kind in (Kind.CODE, Kind.OUTPUT)
        brief = _brief(kind, message.content) if in_exchange else ""
        entries.append(
            ConversationEntry(kind=kind, text=message.content, cell=blocks if in_exchange else 0, brief=brief)
        )
    return tuple(entries)


def _kind_of(message: Message) -> Kind:
    """What it says it is, where one of its role can be that."""
    by_model = message.role == "assistant"
    if message.kind is not None and (Kind(message.kind) in _FROM_MODEL) == by_model:
        return Kind(message.kind)
    return Kind.ANSWER if by_model else Kind.TASK


def _brief(kind: Kind, text: str) -> str:
    """The short form of a block or an output of which only the text is known."""
    code = text.partition("```")[2].partition("\n")[2].partition("\n```")[0] if kind is Kind.CODE else ""
    lines = [line for line in (code or text).split("\n") if line.strip()]
    return shorten(next((line for line in lines if line.rstrip() != "Output:"), ""))


def shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_BRIEF else line[: MAX_BRIEF - 3] + "..."


def to_messages(system: str, entries: Iterable[ConversationEntry]) -> tuple[Message, ...]:
    """The messages for a model. Neighbours of one role become one message: several providers insist on turns."""
    messages = [Message("system", system)] if system else []
    for role, group in groupby(entries, key=lambda entry: entry.role):
        parts = list(group)
        messages.append(Message(role, "\n\n".join(entry.text for entry in parts), _kind_of_all(parts)))
    return tuple(messages)


def to_transcript(system: str, entries: Iterable[ConversationEntry]) -> tuple[Message, ...]:
    """Each part as a message of its own."""
    messages = [Message("system", system)] if system else []
    return (*messages, *(Message(entry.role, entry.text, _NAMES[entry.kind]) for entry in entries))


_NAMES: dict[Kind, MessageKind] = {Kind(name): name for name in get_args(MessageKind)}


def _kind_of_all(parts: list[ConversationEntry]) -> MessageKind:
    """What matters most about several parts that are one message."""
    kinds = [entry.kind for entry in parts]
    found = next((kind for kind in (Kind.TASK, Kind.SUMMARY) if kind in kinds), kinds[-1])
    return _NAMES[found]


def last_task(entries: Iterable[ConversationEntry]) -> int:
    """Index of the task that is being worked on; -1 if there is none."""
    return max((i for i, entry in enumerate(entries) if entry.kind is Kind.TASK), default=-1)


def keep_last(entries: tuple[ConversationEntry, ...], count: int) -> tuple[ConversationEntry, ...]:
    """The last `count` entries, the current task always among them, however long ago it was set.

    An output whose code is not kept goes with it.
    """
    start = max(0, len(entries) - count)
    task = last_task(entries)
    head = (entries[task],) if 0 <= task < start else ()
    kept = entries[start + len(head) :]
    if len(kept) > 1 and kept[0].kind is Kind.OUTPUT:
        kept = kept[1:]
    return head + kept


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
        self, counter: Counter, entries: tuple[ConversationEntry, ...] = (), max_history: int | None = None
    ) -> None:
        self.system = ""
        self.entries = entries
        self._counter = counter
        self._max_entries = None if max_history is None else max_history - 1
        self._counted: dict[str, int] = {}

    def add(self, *entries: ConversationEntry) -> None:
        self.entries += entries
        if self._max_entries is not None:
            self.entries = keep_last(self.entries, self._max_entries)

    def discard(self, entries: Sequence[ConversationEntry]) -> None:
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
