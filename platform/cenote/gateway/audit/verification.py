"""Reads the audit log from its first entry to its last and finds the first that is not as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cenote.gateway.audit.chain import START, Mark
from cenote.gateway.audit.entry import BrokenLineError, Entry, parse_line
from cenote.gateway.audit.folder import BASE, HEAD, log_files, read_lines
from cenote.gateway.audit.head import read_base, read_head
from cenote.gateway.audit.walk import Stop, Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Where the log stops being what was written. number: of the entry that is broken or missing there.

    file: where it should be. line: from 1; 0 when the file ends too early, or it is the head that is wrong.
    """

    number: int
    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a reading of the log showed. last: the last good entry. broken: None when all is as it was written.

    unsigned: entries after the head, and unfinished: bytes of one that is not whole. Nobody was told of these yet: a
    writer is at work, or was killed. Where neither is so, somebody else wrote them.
    """

    last: Mark
    broken: Break | None = None
    unsigned: int = 0
    unfinished: int = 0


def verify(
    folder: Path, key: bytes, *, start: Mark | None = None, witnesses: Iterable[Mark] = ()
) -> Verification:
    """Checks every entry, the head, and the marks of witnesses. A writer may go on meanwhile.

    start: the entry before the first that is there, where older files were moved away; by default what retention has
        signed for that, else the beginning.
    witnesses: marks that were kept elsewhere. Who can write the folder could bring back an old head with an old log;
        only a witness shows that.
    """
    start = start or stored_base(folder, key) or START
    head = stored_head(folder, key)  # before the entries, so that a busy writer's are not behind it
    if head is None:
        reason = "it is missing, or was not signed with this key"
        return Verification(last=start, broken=Break(number=0, file=HEAD, line=0, reason=reason))
    walk = Walk(start, [head, *witnesses])
    # Those before it were about to be removed.
    files = [path for path in log_files(folder) if int(path.stem) > start.number]
    stop = next((stop for path in files if (stop := walk.read(path)) is not None), None)
    return Verification(
        last=walk.mark,
        broken=_broken(walk, stop, head, files),
        unsigned=max(walk.mark.number - head.number, 0),
        unfinished=stop.path.stat().st_size - stop.offset if stop else 0,
    )


def entries(folder: Path) -> Iterator[Entry]:
    """All entries, unchecked, for reading. Stops at a line that is none."""
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
    """The entry after which the log begins, where retention has removed older ones. None if nothing says so."""
    try:
        return read_base((folder / BASE).read_bytes(), key)
    except FileNotFoundError:
        return None


def _broken(walk: Walk, stop: Stop | None, head: Mark, files: list[Path]) -> Break | None:
    number = walk.mark.number + 1
    unfinished = stop is not None and stop.path == files[-1] and walk.mark.number >= head.number
    if stop is not None and not unfinished:
        return Break(number=number, file=stop.path.name, line=stop.line, reason=stop.reason)
    if mark := walk.missing():
        reason = f"the log ends before entry {mark.number}, which was signed or witnessed"
        return Break(number=number, file=files[-1].name if files else HEAD, line=0, reason=reason)
    return None
