"""The conversation of an agent, with what each part of it is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from cenote.models.messages import Message, Role


class Kind(Enum):
    """What a part of the conversation is for."""

    TASK = "task"
    ANSWER = "answer"
    CODE = "code"
    OUTPUT = "output"
    NOTE = "note"
    SUMMARY = "summary"


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


def from_messages(messages: Iterable[Message]) -> tuple[Entry, ...]:
    """Entries of an earlier conversation. System messages are left out: an agent writes its own."""
    kinds = {"user": Kind.TASK, "assistant": Kind.ANSWER}
    return tuple(Entry(kind=kinds[m.role], text=m.content) for m in messages if m.role != "system")


def to_messages(system: str, entries: Iterable[Entry]) -> tuple[Message, ...]:
    """The messages for a model. Neighbours of one role become one message: several providers insist on turns."""
    messages = [Message("system", system)] if system else []
    for role, group in groupby(entries, key=lambda entry: entry.role):
        messages.append(Message(role, "\n\n".join(entry.text for entry in group)))
    return tuple(messages)


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
