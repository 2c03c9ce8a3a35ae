"""Files of the audit log, and reading them entry by entry.

The folder has `<first entry>.jsonl` files that continue each other, `head`, and the writer's `lock`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.gateway.audit.entries import MAX_LINE, BrokenLineError, Mark, follow, mark_of

HEAD: Final = "head"
LOCK: Final = "lock"
BASE: Final = "base"
"""Records after which entry the log begins, where retention has removed older files."""
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a file. offset: of its first byte. The last line of a file may lack its newline."""

    offset: int
    content: bytes


def file_of(folder: Path, first: int) -> Path:
    """The file that starts with that entry."""
    return folder / f"{first:016d}{_SUFFIX}"


def log_files(folder: Path) -> list[Path]:
    """All files of the log, in the order of their entries."""
    return sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


def read_lines(path: Path, start: int = 0) -> Iterator[LogLine]:
    """Reads line by line; of a line longer than any entry, only enough to see that. start: an offset."""
    with path.open("rb") as file:
        file.seek(start)
        while True:
            offset = file.tell()
            content = file.readline(MAX_LINE + 1)
            if not content:
                return
            yield LogLine(offset=offset, content=content)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkStop:
    """The first line that is not the next entry. line: from 1. offset: bytes of the file before it."""

    path: Path
    line: int
    offset: int
    reason: str


class ChainWalk:
    """mark: the last good entry."""

    def __init__(self, start: Mark, marks: Iterable[Mark]) -> None:
        """start: not checked. marks: those after it must be met."""
        self.mark = start
        self._marks = tuple(marks)

    def read(self, path: Path) -> WalkStop | None:
        """Continues through a file. None when all of its lines are the next entries."""
        for number, line in enumerate(read_lines(path), start=1):
            try:
                self._step(line.content)
            except BrokenLineError as error:
                return WalkStop(path=path, line=number, offset=line.offset, reason=str(error))
        return None

    def missing(self) -> Mark | None:
        """A mark after the last entry of the log."""
        return next((mark for mark in self._marks if mark.number > self.mark.number), None)

    def _step(self, content: bytes) -> None:
        here = mark_of(follow(self.mark, content))
        if any(mark.number == here.number and mark.hash != here.hash for mark in self._marks):
            raise BrokenLineError("it is not the entry that was signed or witnessed")
        self.mark = here
