"""Pages of one tenant's part of the audit log, and the verification of all of it, for clients of the platform.

A page is read from the end of the log backwards. One read looks at a limited number of entries, since those of other
tenants lie between; a page may therefore be short, or empty, and not be the last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.gateway.audit.entries import MAX_LINE, AuditEntry, BrokenLineError, parse_line
from cenote.gateway.audit.folder import LogLine, log_files
from cenote.gateway.audit.reader import LogVerification, verify
from cenote_security.errors import UsageError

ENTRIES_OF_A_PAGE: Final = 200

MOST_READ: Final = 4_000
"""Entries that one read looks at, each some twenty microseconds."""

VERIFIED_FOR: Final = 10.0
"""Seconds for which a verification is given to all who ask. It reads the whole log, so callers cannot repeat it."""

_CHUNK: Final = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """tenant: its id. kind: the beginning of kinds, such as `network`; empty for all. refused: only refusals.

    runtime: an id; empty for all.
    """

    tenant: str
    kind: str = ""
    refused: bool = False
    runtime: str = ""

    def takes(self, entry: AuditEntry) -> bool:
        event = entry.event
        return (
            event.tenant == self.tenant
            and event.kind.startswith(self.kind)
            and self.runtime in ("", event.runtime)
            and not (self.refused and event.facts.get("allowed") is not False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """entries: the newest first. following: where the next page begins; empty at the beginning of the log."""

    entries: tuple[AuditEntry, ...]
    following: str = ""


def read_page(folder: Path, query: AuditQuery, place: str = "", limit: int = ENTRIES_OF_A_PAGE) -> AuditPage:
    """place: of an earlier page; empty for the end of the log. Raises UsageError for what is none."""
    limit = min(limit or ENTRIES_OF_A_PAGE, ENTRIES_OF_A_PAGE)
    found: list[AuditEntry] = []
    for read, (path, line) in enumerate(_backwards(folder, *_placed(place)), start=1):
        with suppress(BrokenLineError):
            if query.takes(entry := parse_line(line.content)):
                found.append(entry)
        if len(found) == limit or read == MOST_READ:
            return AuditPage(entries=tuple(found), following=f"{path.stem}.{line.offset}")
    return AuditPage(entries=tuple(found))


def _placed(place: str) -> tuple[int, int | None]:
    """The first entry of a file, and an offset in it. (0, None) for the end of the log."""
    if not place:
        return 0, None
    stem, _, offset = place.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (stem, offset)):
        raise UsageError(f"{place!r:.60} is no place in the audit log; take `next_page` of a reply")
    return int(stem), int(offset)


def _backwards(folder: Path, first: int, offset: int | None) -> Iterator[tuple[Path, LogLine]]:
    """Complete lines before the place, the last first."""
    for path in reversed(log_files(folder)):
        if offset is not None and int(path.stem) > first:
            continue
        end = offset if offset is not None and int(path.stem) == first else None
        with suppress(FileNotFoundError):  # retention has removed it just now
            for line in _lines_before(path, end):
                yield path, line


def _lines_before(path: Path, end: int | None) -> Iterator[LogLine]:
    """end: an offset after a line; None for the end of the file, whose last line may be incomplete."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = size if end is None else min(end, size)
        rest = b""
        while start > 0 and len(rest) <= MAX_LINE:  # a longer one is no line of this log
            length = min(_CHUNK, start)
            start -= length
            file.seek(start)
            first, *lines = (file.read(length) + rest).splitlines(keepends=True)
            offset = start + len(first) + sum(map(len, lines))
            for content in reversed(lines):
                offset -= len(content)
                if content.endswith(b"\n"):
                    yield LogLine(offset=offset, content=content)
            rest = first
        if start == 0 and rest.endswith(b"\n"):
            yield LogLine(offset=0, content=rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """A verification of the whole log. at: seconds since the epoch."""

    found: LogVerification
    at: float


class AuditChecks:
    """Verifies the log for callers, one verification at a time. Thread-safe; blocks."""

    def __init__(self, folder: Path, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._key = key
        self._clock = clock
        self._turn = threading.Lock()
        self._last: AuditCheck | None = None

    def check(self) -> AuditCheck:
        """Those who come while one is under way get its result."""
        with self._turn:
            if self._last is None or self._clock() - self._last.at > VERIFIED_FOR:
                self._last = AuditCheck(found=verify(self._folder, self._key), at=self._clock())
            return self._last
