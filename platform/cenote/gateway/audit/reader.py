"""Reads the audit log: verifies it from its first entry to its last, selects entries to show, and copies it.

Verification finds the first entry that differs from what was written. A selection returns entries without checking
them; only verification shows whether they can be trusted.

Clients get pages of their own tenant's part, read from the end of the log backwards. One read looks at a limited
number of entries, since those of other tenants lie between; a page may therefore be short, or empty, and not be the
last.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from cenote.gateway.audit.entries import (
    MAX_LINE,
    SLOT_BYTES,
    START,
    AuditEntry,
    BrokenLineError,
    Fact,
    Mark,
    head_slot,
    parse_line,
    read_base,
    read_head,
)
from cenote.gateway.audit.folder import BASE, HEAD, ChainWalk, LogLine, WalkStop, log_files, read_lines
from cenote.gateway.errors import AuditBrokenError, AuditUnavailableError
from cenote_security.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBreak:
    """Where the log differs from what was written. number: of the entry that is broken or missing there.

    file: where it should be. line: from 1; 0 when the file ends too early, or when the head is wrong.
    """

    number: int
    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerification:
    """The result of reading the log. last: the last good entry. broken: None when all is as it was written.

    unsigned: entries after the head, and unfinished: bytes of an incomplete one. These were not acknowledged yet: a
    writer is at work, or was killed. Otherwise, someone else wrote them.
    """

    last: Mark
    broken: LogBreak | None = None
    unsigned: int = 0
    unfinished: int = 0


def verify(
    folder: Path, key: bytes, *, start: Mark | None = None, witnesses: Iterable[Mark] = ()
) -> LogVerification:
    """Checks every entry, the head, and the marks of witnesses. A writer may continue meanwhile.

    start: the entry before the first one, where older files were moved away; by default the base that retention has
    signed, else the beginning.
    witnesses: marks that were stored elsewhere. An attacker who can write the folder could restore an old head with
    an old log; only a witness reveals that.
    """
    start = start or stored_base(folder, key) or START
    head = stored_head(folder, key)  # first, so that it is not newer than the entries that are read
    if head is None:
        reason = "it is missing, or was not signed with this key"
        return LogVerification(last=start, broken=LogBreak(number=0, file=HEAD, line=0, reason=reason))
    walk = ChainWalk(start, [head, *witnesses])
    # Entries before it were about to be removed.
    files = [path for path in log_files(folder) if int(path.stem) > start.number]
    stop = next((stop for path in files if (stop := walk.read(path)) is not None), None)
    return LogVerification(
        last=walk.mark,
        broken=_broken(walk, stop, head, files),
        unsigned=max(walk.mark.number - head.number, 0),
        unfinished=stop.path.stat().st_size - stop.offset if stop else 0,
    )


def entries(folder: Path) -> Iterator[AuditEntry]:
    """All entries, unchecked, for reading. Stops at an invalid line."""
    for path in log_files(folder):
        for line in read_lines(path):
            try:
                yield parse_line(line.content)
            except BrokenLineError:
                return


def stored_head(folder: Path, key: bytes) -> Mark | None:
    """The head, None if it is missing or was not signed with this key."""
    try:
        found = read_head((folder / HEAD).read_bytes(), key)
    except FileNotFoundError:
        return None
    return found[0] if found else None


def stored_base(folder: Path, key: bytes) -> Mark | None:
    """The entry after which the log begins, where retention has removed older ones. None without a signed base."""
    try:
        return read_base((folder / BASE).read_bytes(), key)
    except FileNotFoundError:
        return None


def _broken(walk: ChainWalk, stop: WalkStop | None, head: Mark, files: list[Path]) -> LogBreak | None:
    number = walk.mark.number + 1
    unfinished = stop is not None and stop.path == files[-1] and walk.mark.number >= head.number
    if stop is not None and not unfinished:
        return LogBreak(number=number, file=stop.path.name, line=stop.line, reason=stop.reason)
    if mark := walk.missing():
        reason = f"the log ends before entry {mark.number}, which was signed or witnessed"
        return LogBreak(number=number, file=files[-1].name if files else HEAD, line=0, reason=reason)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySelection:
    """runtime, tenant: ids, or the name of a runtime; empty for all. since, until: microseconds since the epoch."""

    runtime: str = ""
    tenant: str = ""
    since: int = 0
    until: int = 2**63

    def takes(self, entry: AuditEntry, names: IdNames | None = None) -> bool:
        event = entry.event
        runtime = event.runtime
        named = names is not None and self.runtime == names.runtimes.get(runtime, "")
        return (
            self.since <= entry.at <= self.until
            and (self.runtime in ("", runtime) or (named and bool(runtime)))
            and self.tenant in ("", event.tenant)
        )


@dataclass(slots=True, kw_only=True)
class IdNames:
    """Names of ids. tenants: from the database. runtimes: also ended ones, from the log itself."""

    tenants: Mapping[str, str] = field(default_factory=dict)
    runtimes: dict[str, str] = field(default_factory=dict)

    def learn(self, entry: AuditEntry) -> None:
        """Takes the names from an entry, selected or not."""
        if entry.event.kind == "runtime.created" and isinstance(name := entry.event.facts.get("name"), str):
            self.runtimes[entry.event.runtime] = name

    def of(self, entry: AuditEntry) -> dict[str, str]:
        return {
            "tenant_name": self.tenants.get(entry.event.tenant, ""),
            "runtime_name": self.runtimes.get(entry.event.runtime, ""),
        }


def selected(
    files: Iterable[Path], wanted: EntrySelection, names: IdNames | None = None
) -> Iterator[AuditEntry]:
    """The selected entries in order. An invalid line is skipped. names: learns from all entries."""
    for path in files:
        for entry, _ in _entries(path, 0):
            if names is not None:
                names.learn(entry)
            if wanted.takes(entry, names):
                yield entry


def followed(
    folder: Path, wanted: EntrySelection, wait: Callable[[], object], names: IdNames, after: int
) -> Iterator[AuditEntry]:
    """Entries after `after`, as they are written, for ever. wait: called when there is none for now."""
    path, offset = _file_with(folder, after), 0
    while True:
        if path is not None:
            for entry, end in _entries(path, offset):
                offset = end
                if entry.number <= after:
                    continue
                after = entry.number
                names.learn(entry)
                if wanted.takes(entry, names):
                    yield entry
        newer = [each for each in log_files(folder) if path is None or each > path]
        if newer:
            path, offset = newer[0], 0
        else:
            wait()


def _file_with(folder: Path, number: int) -> Path | None:
    """The file that has an entry, or will have the next one; None for a log without files."""
    return max((path for path in log_files(folder) if int(path.stem) <= max(number, 1)), default=None)


def _entries(path: Path, start: int) -> Iterator[tuple[AuditEntry, int]]:
    """Entries with the offset after each. An incomplete line is left for later."""
    with suppress(FileNotFoundError):  # retention has removed it just now
        for line in read_lines(path, start):
            if not line.content.endswith(b"\n"):
                return
            try:
                yield parse_line(line.content), line.offset + len(line.content)
            except BrokenLineError:
                continue


def described(entry: AuditEntry, names: IdNames | None = None) -> str:
    """One line of plain text."""
    event = entry.event
    called = {} if names is None else names.of(entry)
    who = " ".join(
        f"{text}({_shown(name)})" if (name := called.get(f"{kind}_name", "")) else text
        for kind, text in (("tenant", event.tenant), ("token", event.token), ("runtime", event.runtime))
        if text
    )
    facts = " ".join(f"{name}={_shown(fact)}" for name, fact in event.facts.items() if fact not in ("", None))
    return f"{entry.number} {moment_of(entry)} {event.kind} {who} {facts}"


def exported(entry: AuditEntry, names: IdNames) -> dict[str, Any]:
    """The entry as plain data, for other programs."""
    event = entry.event
    return {
        "number": entry.number,
        "time": moment_of(entry),
        "kind": event.kind,
        "tenant": event.tenant,
        "token": event.token,
        "runtime": event.runtime,
        **names.of(entry),
        "facts": dict(event.facts),
        "hash": entry.hash,
    }


def moment_of(entry: AuditEntry) -> str:
    return datetime.fromtimestamp(entry.at / 1e6, UTC).isoformat(timespec="milliseconds")


def _shown(fact: Fact) -> str:
    plain = isinstance(fact, str) and fact.isascii() and fact.replace("_", "").isalnum()
    return str(fact) if plain else ascii(fact)


_TRIES: Final = 5
"""Retention removes old files, a few times a day."""

Copied = Callable[[str, IO[bytes], int], None]


def copy_log(folder: Path, key: bytes, add: Copied) -> Mark:
    """add: gets the name, the open file and the size of each file of the copy. Returns the head.

    The head is read before the files, so that they have all that it has signed; the base after they were opened, so
    that they have all that it does not cover. Raises AuditBrokenError for a head that was not signed with this key,
    or whose entry is missing; AuditUnavailableError.
    """
    head = stored_head(folder, key)
    if head is None:
        raise AuditBrokenError(folder, "its head is missing, or was not signed with this key")
    with ExitStack() as opened:
        files = _opened_files(folder, head, opened)
        base = (folder / BASE).read_bytes() if (folder / BASE).exists() else b""
        for path, file in files[:-1]:
            add(path.name, file, os.fstat(file.fileno()).st_size)
        for path, file in files[-1:]:
            add(path.name, file, _end_of(head, path))
    for name, content in ((HEAD, head_slot(head, key).ljust(2 * SLOT_BYTES, b" ")), (BASE, base)):
        if content:
            add(name, io.BytesIO(content), len(content))
    return head


def _opened_files(folder: Path, head: Mark, opened: ExitStack) -> list[tuple[Path, IO[bytes]]]:
    for _ in range(_TRIES):
        with ExitStack() as files:
            try:
                found: list[tuple[Path, IO[bytes]]] = [
                    (path, files.enter_context(path.open("rb")))
                    for path in log_files(folder)
                    if int(path.stem) <= head.number
                ]
            except FileNotFoundError:
                continue
            opened.push(files.pop_all())
            return found
    raise AuditUnavailableError(folder, "its files are removed faster than they can be copied; try again")


def _end_of(head: Mark, path: Path) -> int:
    """Where the entry of the head ends in the last file."""
    for line in read_lines(path):
        try:
            entry = parse_line(line.content)
        except BrokenLineError as error:
            raise AuditBrokenError(path.parent, f"{path.name} at byte {line.offset}: {error}") from None
        if entry.number == head.number:
            return line.offset + len(line.content)
    raise AuditBrokenError(path.parent, f"{path.name} ends before entry {head.number}")


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
