"""How entries hang together: each carries the hash of the one before. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote.gateway.audit.entry import NO_HASH, BrokenLineError, Entry, Event, parse_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in the log: the entry of this number, which had this hash. Kept elsewhere, it is a witness."""

    number: int
    hash: str


START: Final = Mark(number=0, hash=NO_HASH)
"""Before the first entry."""


def after(mark: Mark, event: Event, at: int) -> Entry:
    """The entry that comes next. at: microseconds since the epoch."""
    return Entry(number=mark.number + 1, at=at, event=event, previous=mark.hash)


def mark_of(entry: Entry) -> Mark:
    return Mark(number=entry.number, hash=entry.hash)


def before(entry: Entry) -> Mark:
    """What the entry says of the one before."""
    return Mark(number=entry.number - 1, hash=entry.previous)


def follow(mark: Mark, line: bytes) -> Entry:
    """The entry of a line, if it is the next one. Raises BrokenLineError."""
    entry = parse_line(line)
    if entry.number != mark.number + 1:
        raise BrokenLineError(f"it is entry {entry.number}, where {mark.number + 1} belongs")
    if entry.previous != mark.hash:
        raise BrokenLineError("the entry before it was exchanged")
    return entry
