"""Entries of the audit log, how they are chained by hashes, and the signed head. Values only.

An entry has exactly one form, as a line of ASCII:

    {"entry":{...,"previous":"<hash of the entry before>"},"hash":"<hash of this entry>"}

The hash is SHA-256, in hexadecimal, of `cenote audit entry`, a NUL and the text of the entry from brace to brace.
Keys are sorted, there is no space, all but printable ASCII is escaped: no entry can control a terminal or start a
second line. A line is valid only if it equals the encoding of its content, so nothing can hide in a second form.
There are no floating-point numbers, whose form differs between languages.

The head records how far the log has come: it reveals a log that was cut off at its end. Its file has two slots on
pages of their own, written in turn, so that a write that a crash interrupts leaves the other one. It never grows: a
full disk cannot stop it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import UsageError

MAX_LINE: Final = 256 * 2**10
"""Bytes. Events are bounded where they are recorded; this bounds what a reader must accept."""

NO_HASH: Final = "0" * 64
"""The previous hash of the first entry."""

Fact = str | int | bool | None | list["Fact"] | tuple["Fact", ...] | Mapping[str, "Fact"]
Facts = Mapping[str, Fact]

_DOMAIN: Final = b"cenote audit entry\0"
_PLAIN: Final = frozenset((str, int, bool, type(None)))
_KEYS: Final = {"number", "at", "kind", "tenant", "token", "runtime", "facts", "previous"}


class BrokenLineError(ValueError):
    """A line that the log's writer did not write. The text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An event before it has its place in the log.

    kind: such as `cell.started`. tenant, token, runtime: ids; empty where there is none.
    """

    kind: str
    tenant: str = ""
    token: str = ""
    runtime: str = ""
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """number: from 1. at: microseconds since the epoch, by the writer's clock. previous: hash of the one before."""

    number: int
    at: int
    event: AuditEvent
    previous: str

    @property
    def hash(self) -> str:
        return _digest(self._body())

    def line(self) -> bytes:
        """See `written`."""
        return self.written()[0]

    def written(self) -> tuple[bytes, str]:
        """Returns the line and its hash, which are made of the same text.

        Raises UsageError for facts that cannot be logged: floating-point numbers, or too many facts.
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


def check_event(event: AuditEvent) -> None:
    """Raises UsageError for an event that cannot be logged at any place."""
    AuditEntry(number=10**18, at=10**18, event=event, previous=NO_HASH).line()


def parse_line(line: bytes) -> AuditEntry:
    """The entry of a line, its newline included. Raises BrokenLineError unless it is the entry's encoding."""
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


def _entry(content: dict[str, Fact]) -> AuditEntry:
    texts = {name: content[name] for name in ("kind", "tenant", "token", "runtime", "previous")}
    number, at, facts = content["number"], content["at"], content["facts"]
    if set(content) != _KEYS or not all(isinstance(text, str) for text in texts.values()):
        raise BrokenLineError("it is not an entry")
    if type(number) is not int or type(at) is not int or not isinstance(facts, Mapping):
        raise BrokenLineError("it is not an entry")
    previous = str(texts.pop("previous"))
    event = AuditEvent(facts=facts, **{name: str(text) for name, text in texts.items()})
    return AuditEntry(number=number, at=at, event=event, previous=previous)


def _digest(body: str) -> str:
    return hashlib.sha256(_DOMAIN + body.encode("ascii")).hexdigest()


def _canonical(content: Facts) -> str:
    return json.dumps(_plain(content), ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _plain(fact: Fact) -> Fact:
    """Converts mappings of any kind to those that the JSON encoder takes."""
    if isinstance(fact, str | int | None):
        return fact
    if isinstance(fact, Mapping):
        # Most are plain, and an entry has some twenty: this avoids a call for each.
        return {name: value if type(value) in _PLAIN else _plain(value) for name, value in fact.items()}
    if isinstance(fact, list | tuple):
        return [_plain(value) for value in fact]
    raise UsageError(f"the audit log keeps no {type(fact).__name__}; write times as whole microseconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in the log: the entry of this number with this hash. Stored elsewhere, it is a witness."""

    number: int
    hash: str


START: Final = Mark(number=0, hash=NO_HASH)
"""Before the first entry."""


def after(mark: Mark, event: AuditEvent, at: int) -> AuditEntry:
    """The entry that comes next. at: microseconds since the epoch."""
    return AuditEntry(number=mark.number + 1, at=at, event=event, previous=mark.hash)


def mark_of(entry: AuditEntry) -> Mark:
    return Mark(number=entry.number, hash=entry.hash)


def before(entry: AuditEntry) -> Mark:
    """The mark of the entry before, as this one says."""
    return Mark(number=entry.number - 1, hash=entry.previous)


def follow(mark: Mark, line: bytes) -> AuditEntry:
    """The entry of a line, if it is the next one. Raises BrokenLineError."""
    entry = parse_line(line)
    if entry.number != mark.number + 1:
        raise BrokenLineError(f"it is entry {entry.number}, where {mark.number + 1} belongs")
    if entry.previous != mark.hash:
        raise BrokenLineError("the entry before it was exchanged")
    return entry


SLOT_BYTES: Final = 4096
_SLOT: Final = re.compile(rb"([0-9]{20}) ([0-9a-f]{64}) ([0-9a-f]{64})\n")


_HEAD_DOMAIN: Final = "cenote audit head"
_BASE_DOMAIN: Final = "cenote audit base"
"""Not that of the head: a copied head must not count as a base, which would hide all entries before it."""


def head_slot(mark: Mark, key: bytes) -> bytes:
    """One encoded slot."""
    return _slot(mark, key, _HEAD_DOMAIN)


def signed_base(mark: Mark, key: bytes) -> bytes:
    """The content of a file with the entry after which the log begins, since older files were removed."""
    return _slot(mark, key, _BASE_DOMAIN)


def read_base(content: bytes, key: bytes) -> Mark | None:
    """The mark, if it was signed with this key."""
    return _read_slot(content, 0, key, _BASE_DOMAIN)


def _slot(mark: Mark, key: bytes, domain: str) -> bytes:
    text = f"{mark.number:020d} {mark.hash}"
    return f"{text} {_mac(text, key, domain)}\n".encode("ascii").ljust(SLOT_BYTES, b" ")


def read_head(content: bytes, key: bytes) -> tuple[Mark, int] | None:
    """The newest mark that was signed with this key, and its slot, 0 or 1. None when there is none."""
    marks = [
        (mark, slot) for slot in (0, 1) if (mark := _read_slot(content, slot, key, _HEAD_DOMAIN)) is not None
    ]
    return max(marks, key=lambda found: found[0].number) if marks else None


def _read_slot(content: bytes, slot: int, key: bytes, domain: str) -> Mark | None:
    match = _SLOT.match(content, slot * SLOT_BYTES)
    if match is None:
        return None
    number, digest, mac = (group.decode("ascii") for group in match.groups())
    if not hmac.compare_digest(mac, _mac(f"{number} {digest}", key, domain)):
        return None
    return Mark(number=int(number), hash=digest)


def _mac(text: str, key: bytes, domain: str) -> str:
    return hmac.new(key, f"{domain}\0{text}".encode("ascii"), hashlib.sha256).hexdigest()
