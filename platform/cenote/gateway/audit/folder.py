"""Where the audit log lies: `<first entry>.jsonl` files that continue each other, `head`, and the writer's `lock`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.gateway.audit.entry import MAX_LINE

HEAD: Final = "head"
LOCK: Final = "lock"
BASE: Final = "base"
"""Says after which entry the log begins, where retention has removed older files."""
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a file as it lies there. offset: of its first byte. At the end of a file it may lack its newline."""

    offset: int
    content: bytes


def file_of(folder: Path, first: int) -> Path:
    """The file that starts with that entry."""
    return folder / f"{first:016d}{_SUFFIX}"


def log_files(folder: Path) -> list[Path]:
    """All files of the log, in the order of their entries."""
    return sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """One line after the other; of one that is longer than any entry, as much as shows that. start: an offset."""
    with path.open("rb") as file:
        file.seek(start)
        while True:
            offset = file.tell()
            content = file.readline(MAX_LINE + 1)
            if not content:
                return
            yield Line(offset=offset, content=content)
