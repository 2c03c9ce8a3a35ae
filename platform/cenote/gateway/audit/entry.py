"""One entry of the audit log and its one spelling as a line of ASCII. Values only.

    {"entry":{...,"previous":"<hash of the entry before>"},"hash":"<hash of this entry>"}

The hash is SHA-256, in hexadecimal, of `cenote audit entry`, a NUL and the text of the entry from brace to brace.
Keys are sorted, there is no space, all but printable ASCII is escaped: no entry can draw on a terminal or start a
second line. A line is good if it is letter for letter what its content would be written as, so nothing can hide in
a second spelling. There are no floating-point numbers, whose spelling differs between languages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import UsageError

MAX_LINE: Final = 256 * 2**10
"""Bytes. What is recorded is bounded where it is recorded; this bounds what a reader has to take."""

NO_HASH: Final = "0" * 64
"""What comes before the first entry."""

Fact = str | int | bool | None | list["Fact"] | tuple["Fact", ...] | Mapping[str, "Fact"]
Facts = Mapping[str, Fact]

_DOMAIN: Final = b"cenote audit entry\0"
_PLAIN: Final = frozenset((str, int, bool, type(None)))
_KEYS: Final = {"number", "at", "kind", "tenant", "token", "runtime", "facts", "previous"}


class BrokenLineError(ValueError):
    """A line that the log's writer did not write. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened, before it has its place in the log.

    kind: such as `cell.started`. tenant, token, runtime: ids of who and where, empty where there is none.
    """

    kind: str
    tenant: str = ""
    token: str = ""
    runtime: str = ""
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """number: from 1. at: microseconds since the epoch, by the writer's clock. previous: hash of the one before."""

    number: int
    at: int
    event: Event
    previous: str

    @property
    def hash(self) -> str:
        return _digest(self._body())

    def line(self) -> bytes:
        """See `written`."""
        return self.written()[0]

    def written(self) -> tuple[bytes, str]:
        """Its line, and its hash: both are made of the same text.

        Raises UsageError for facts that have no place in a log: floating-point numbers, or too many of them.
        """
        body = self._body()
        digest = _digest(body)
        line = f'{{"entry":{body},"hash":"{digest}"}}\n'.encode("ascii")
        if len(line) > MAX_LINE:
            raise UsageError(f"an entry of the audit log has up to {MAX_LINE} bytes, not {len(line)}")
        return line, digest

    def _body(self) -> str:
        event = self.event
        return _canonical(
            {
                "number": self.number,
                "at": self.at,
                "kind": event.kind,
                "tenant": event.tenant,
                "token": event.token,
                "runtime": event.runtime,
                "facts": event.facts,
                "previous": self.previous,
            }
        )


def check_event(event: Event) -> None:
    """Raises UsageError for an event that has no place in a log, whichever place that is."""
    Entry(number=10**18, at=10**18, event=event, previous=NO_HASH).line()


def parse_line(line: bytes) -> Entry:
    """The entry that this line, its newline included, was written for. Raises BrokenLineError for any other."""
    if len(line) > MAX_LINE:
        raise BrokenLineError("it is longer than any entry")
    try:
        entry = _entry(json.loads(line)["entry"])
        written = entry.line()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BrokenLineError("it is not an entry") from None
    if written != line:
        raise BrokenLineError("its content does not match its hash")
    return entry


def _entry(content: dict[str, Fact]) -> Entry:
    texts = {name: content[name] for name in ("kind", "tenant", "token", "runtime", "previous")}
    number, at, facts = content["number"], content["at"], content["facts"]
    if set(content) != _KEYS or not all(isinstance(text, str) for text in texts.values()):
        raise BrokenLineError("it is not an entry")
    if type(number) is not int or type(at) is not int or not isinstance(facts, Mapping):
        raise BrokenLineError("it is not an entry")
    previous = str(texts.pop("previous"))
    event = Event(facts=facts, **{name: str(text) for name, text in texts.items()})
    return Entry(number=number, at=at, event=event, previous=previous)


def _digest(body: str) -> str:
    return hashlib.sha256(_DOMAIN + body.encode("ascii")).hexdigest()


def _canonical(content: Facts) -> str:
    return json.dumps(_plain(content), ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _plain(fact: Fact) -> Fact:
    """Mappings of any kind as those that the JSON encoder knows."""
    if isinstance(fact, str | int | None):
        return fact
    if isinstance(fact, Mapping):
        # Most are plain, and there are some twenty in an entry: no call for each.
        return {name: value if type(value) in _PLAIN else _plain(value) for name, value in fact.items()}
    if isinstance(fact, list | tuple):
        return [_plain(value) for value in fact]
    raise UsageError(f"the audit log keeps no {type(fact).__name__}; write times as whole microseconds")
