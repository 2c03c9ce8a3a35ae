"""One task of one agent: what is written down of it, and how far that was heard by a process that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cenote.gateway.teams.ledger import Note
from cenote_security.errors import CenoteError, UsageError

Write = Callable[[Note], None]
"""Writes down what has happened, for good."""


class ForgottenError(CenoteError):
    """The notes of a task that was broken off are at their end, and nobody wants it to go on."""


@dataclass(slots=True, kw_only=True)
class Course:
    """write: where further notes go. wanted: whether the task goes on behind its last note."""

    agent: str
    place: str
    task: str
    write: Write
    notes: list[Note] = field(default_factory=list)
    heard: int = 0
    cells: int = 0
    ended: bool = False
    wanted: bool = True
    is_replayed: bool = False
    """Whether what happens now has happened before."""
    in_doubt: bool = False
    """Whether what happens next may have happened before, and its process was killed before it had written that."""

    def next(self, kind: str) -> Any:
        """The next note, as data; None when it has yet to happen. Raises ForgottenError."""
        self.is_replayed = self.heard < len(self.notes)
        if not self.is_replayed:
            if not self.wanted:
                raise ForgottenError
            return None
        note = self.notes[self.heard]
        if note.kind != kind:
            raise UsageError(
                f"the record of {note.agent}'s work at {self.place!r} does not fit what it does now"
            )
        self.heard += 1
        return json.loads(note.data)

    def note(self, kind: str, data: object) -> None:
        """Something has happened, and was heard."""
        note = Note(agent=self.agent, place=self.place, number=len(self.notes), kind=kind, data=as_text(data))
        self.write(note)
        self.notes.append(note)
        self.heard += 1
        self.in_doubt = False

    def mark(self, kind: str, data: object) -> None:
        """Where it begins and ends, which nobody hears again."""
        self.write(Note(agent=self.agent, place=self.place, number=0, kind=kind, data=as_text(data)))


def as_text(data: object) -> str:
    """Data of a note."""
    return json.dumps(data, separators=(",", ":"))
