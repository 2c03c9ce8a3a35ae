"""Entries of the log that somebody wants to see, as they lie there. Verification says whether to believe them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cenote.gateway.audit.entry import BrokenLineError, Entry, Fact, parse_line
from cenote.gateway.audit.folder import read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """runtime, tenant: ids, empty for all. since: microseconds since the epoch."""

    runtime: str = ""
    tenant: str = ""
    since: int = 0

    def takes(self, entry: Entry) -> bool:
        event = entry.event
        return (
            entry.at >= self.since
            and self.runtime in ("", event.runtime)
            and self.tenant in ("", event.tenant)
        )


def selected(files: Iterable[Path], wanted: Selection) -> Iterator[Entry]:
    """Those that are wanted, in their order. A line that is no entry is left out."""
    for path in files:
        for line in read_lines(path):
            try:
                entry = parse_line(line.content)
            except BrokenLineError:
                continue
            if wanted.takes(entry):
                yield entry


def described(entry: Entry) -> str:
    """One line of plain text."""
    event = entry.event
    at = datetime.fromtimestamp(entry.at / 1e6, UTC).isoformat(timespec="milliseconds")
    who = " ".join(text for text in (event.tenant, event.token, event.runtime) if text)
    facts = " ".join(f"{name}={_shown(fact)}" for name, fact in event.facts.items() if fact not in ("", None))
    return f"{entry.number} {at} {event.kind} {who} {facts}"


def _shown(fact: Fact) -> str:
    plain = isinstance(fact, str) and fact.isascii() and fact.replace("_", "").isalnum()
    return str(fact) if plain else ascii(fact)
