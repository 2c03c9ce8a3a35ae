"""The conversation of an agent, with what each part of it is for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import get_args

from cenote.models.messages import Message, MessageKind, Role


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
class Entry:
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


_CODE = re.compile(r"```[^\n]*\n(.+?)(?:\n```|$)", re.DOTALL)


def from_messages(messages: Iterable[Message], blocks: int = 0) -> tuple[Entry, ...]:
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
        entries.append(Entry(kind=kind, text=message.content, cell=blocks if in_exchange else 0, brief=brief))
    return tuple(entries)


def _kind_of(message: Message) -> Kind:
    """What it says it is, where one of its role can be that."""
    by_model = message.role == "assistant"
    if message.kind is not None and (Kind(message.kind) in _FROM_MODEL) == by_model:
        return Kind(message.kind)
    return Kind.ANSWER if by_model else Kind.TASK


def _brief(kind: Kind, text: str) -> str:
    """The short form of a block or an output of which only the text is known."""
    code = _CODE.search(text) if kind is Kind.CODE else None
    lines = [line for line in (code[1] if code else text).split("\n") if line.strip()]
    return shorten(next((line for line in lines if line.rstrip() != "Output:"), ""))


def shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_BRIEF else line[: MAX_BRIEF - 3] + "..."


def to_messages(system: str, entries: Iterable[Entry]) -> tuple[Message, ...]:
    """The messages for a model. Neighbours of one role become one message: several providers insist on turns."""
    messages = [Message("system", system)] if system else []
    for role, group in groupby(entries, key=lambda entry: entry.role):
        parts = list(group)
        messages.append(Message(role, "\n\n".join(entry.text for entry in parts), _kind_of_all(parts)))
    return tuple(messages)


def to_transcript(system: str, entries: Iterable[Entry]) -> tuple[Message, ...]:
    """Each part as a message of its own."""
    messages = [Message("system", system)] if system else []
    return (*messages, *(Message(entry.role, entry.text, _NAMES[entry.kind]) for entry in entries))


_NAMES: dict[Kind, MessageKind] = {Kind(name): name for name in get_args(MessageKind)}


def _kind_of_all(parts: list[Entry]) -> MessageKind:
    """What matters most about several parts that are one message."""
    kinds = [entry.kind for entry in parts]
    found = next((kind for kind in (Kind.TASK, Kind.SUMMARY) if kind in kinds), kinds[-1])
    return _NAMES[found]


def last_task(entries: Iterable[Entry]) -> int:
    """Index of the task that is being worked on; -1 if there is none."""
    return max((i for i, entry in enumerate(entries) if entry.kind is Kind.TASK), default=-1)


def keep_last(entries: tuple[Entry, ...], count: int) -> tuple[Entry, ...]:
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
