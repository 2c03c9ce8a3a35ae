"""Goes along the log's lines from one entry to the next, and past the marks that must lie on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cenote.gateway.audit.chain import Mark, follow, mark_of
from cenote.gateway.audit.entry import BrokenLineError
from cenote.gateway.audit.folder import read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The first line that is not the next entry. line: from 1. offset: bytes of the file before it."""

    path: Path
    line: int
    offset: int
    reason: str


class Walk:
    """mark: the last good entry."""

    def __init__(self, start: Mark, marks: Iterable[Mark]) -> None:
        """start: taken as it is. marks: those after it must be met."""
        self.mark = start
        self._marks = tuple(marks)

    def read(self, path: Path) -> Stop | None:
        """Goes on through a file. None when all of its lines are the next entries."""
        for number, line in enumerate(read_lines(path), start=1):
            try:
                self._step(line.content)
            except BrokenLineError as error:
                return Stop(path=path, line=number, offset=line.offset, reason=str(error))
        return None

    def missing(self) -> Mark | None:
        """A mark that lies further on than the log goes."""
        return next((mark for mark in self._marks if mark.number > self.mark.number), None)

    def _step(self, content: bytes) -> None:
        here = mark_of(follow(self.mark, content))
        if any(mark.number == here.number and mark.hash != here.hash for mark in self._marks):
            raise BrokenLineError("it is not the entry that was signed or witnessed")
        self.mark = here
