"""Entries of the log that somebody wants to see, as they lie there. Verification says whether to believe them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cenote.gateway.audit.entry import BrokenLineError, Entry, Fact, parse_line
from cenote.gateway.audit.folder import log_files, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """runtime, tenant: ids, or of a runtime the name; empty for all. since, until: microseconds since the epoch."""

    runtime: str = ""
    tenant: str = ""
    since: int = 0
    until: int = 2**63

    def takes(self, entry: Entry, names: Names | None = None) -> bool:
        event = entry.event
        runtime = event.runtime
        named = names is not None and self.runtime == names.runtimes.get(runtime, "")
        return (
            self.since <= entry.at <= self.until
            and (self.runtime in ("", runtime) or (named and bool(runtime)))
            and self.tenant in ("", event.tenant)
        )


@dataclass(slots=True, kw_only=True)
class Names:
    """What ids stand for. tenants: from the records. runtimes: also those that are gone, from the log itself."""

    tenants: Mapping[str, str] = field(default_factory=dict)
    runtimes: dict[str, str] = field(default_factory=dict)

    def learn(self, entry: Entry) -> None:
        """From an entry on the way, whether it is wanted or not."""
        if entry.event.kind == "runtime.created" and isinstance(name := entry.event.facts.get("name"), str):
            self.runtimes[entry.event.runtime] = name

    def of(self, entry: Entry) -> dict[str, str]:
        return {
            "tenant_name": self.tenants.get(entry.event.tenant, ""),
            "runtime_name": self.runtimes.get(entry.event.runtime, ""),
        }


def selected(files: Iterable[Path], wanted: Selection, names: Names | None = None) -> Iterator[Entry]:
    """Those that are wanted, in their order. A line that is no entry is left out. names: learns on the way."""
    for path in files:
        for entry, _ in _entries(path, 0):
            if names is not None:
                names.learn(entry)
            if wanted.takes(entry, names):
                yield entry


def followed(
    folder: Path, wanted: Selection, wait: Callable[[], object], names: Names, after: int
) -> Iterator[Entry]:
    """Those behind entry `after`, as they come, for ever. wait: called when there is none for now."""
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
    """The file that has an entry, or will have the next one; None for a log without any."""
    return max((path for path in log_files(folder) if int(path.stem) <= max(number, 1)), default=None)


def _entries(path: Path, start: int) -> Iterator[tuple[Entry, int]]:
    """With the offset behind each. A line that is being written is left for later."""
    with suppress(FileNotFoundError):  # retention has removed it just now
        for line in read_lines(path, start):
            if not line.content.endswith(b"\n"):
                return
            try:
                yield parse_line(line.content), line.offset + len(line.content)
            except BrokenLineError:
                continue


def described(entry: Entry, names: Names | None = None) -> str:
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


def exported(entry: Entry, names: Names) -> dict[str, Any]:
    """As plain data, for other programs."""
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


def moment_of(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.at / 1e6, UTC).isoformat(timespec="milliseconds")


def _shown(fact: Fact) -> str:
    plain = isinstance(fact, str) and fact.isascii() and fact.replace("_", "").isalnum()
    return str(fact) if plain else ascii(fact)
