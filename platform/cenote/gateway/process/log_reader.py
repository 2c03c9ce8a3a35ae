"""Reads what happened on a platform: the log of its processes and its audit log, as events in one order.

The log has errors and changes of condition, with their traces; the audit log has cells, runtimes, tokens and
refusals, with their steps. A line of the log in another form, such as one of a program that a process has started,
belongs to the event before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cenote.gateway.audit.entries import AuditEntry, Facts
from cenote.gateway.process.logs import without_secrets
from cenote_worker.process.log_context import FIELDS

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
"""From the least to the most severe."""

MAX_LINE: Final = 2**20
"""Bytes of a line that are read; a traceback has some thousand."""

_PLAIN: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (\S+): (.*)", re.DOTALL)
_LONG: Final = ("_sha256", "_at", "_bytes", "_memory", "_written", "_us", "number", "source")
"""Ends of the names of facts that a line of text leaves out."""

_RUNTIME: Final = re.compile(r"\brt_[0-9a-f]{32}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """time: seconds since the epoch. level: one of LEVELS. source: a logger, or `audit`. runtime, tenant: ids.

    event: a message, or the kind of an entry of the audit log, whose facts those of the entry are. step: 0 where it
    is none's. error: a traceback, or what a cell failed with.
    """

    time: float
    level: str
    source: str
    event: str
    error: str = ""
    tenant: str = ""
    runtime: str = ""
    step: int = 0
    trace: str = ""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """level: the least severe that is taken. since: seconds since the epoch. tenant: an id. runtime: an id or a name,
    which several runtimes can have had. Empty for all.
    """

    level: str = LEVELS[0]
    since: float = 0.0
    tenant: str = ""
    runtime: str = ""

    def takes(self, event: LogEvent, names: Mapping[str, str]) -> bool:
        """names: of runtimes, by id."""
        return (
            LEVELS.index(event.level) >= LEVELS.index(self.level)
            and event.time >= self.since
            and self.tenant in ("", event.tenant)
            and self.runtime in ("", event.runtime, names.get(event.runtime, ""))
        )


def parse_log(lines: Iterable[str]) -> Iterator[LogEvent]:
    """The events of a log's lines, JSON or not. What follows a plain line without a time of its own is its error."""
    waiting: LogEvent | None = None
    for line in lines:
        if (event := _json_event(line) or _plain_event(line)) is not None:
            if waiting is not None:
                yield waiting
            waiting = event
        elif line.strip():
            waiting = _continued(waiting, line)
    if waiting is not None:
        yield waiting


def from_audit(entry: AuditEntry) -> LogEvent:
    """An entry of the audit log as an event."""
    event, facts = entry.event, entry.event.facts
    step = facts.get("step", 0)
    return LogEvent(
        time=entry.at / 1e6,
        level=_level(event.kind, facts.get("allowed"), facts.get("state")),
        source="audit",
        event=event.kind,
        error=str(facts.get("error", "")),
        tenant=event.tenant,
        runtime=event.runtime,
        step=step if isinstance(step, int) else 0,
        facts={name: fact for name, fact in facts.items() if name not in ("step", "error")},
    )


def _level(kind: str, allowed: object, state: object) -> str:
    """A failed cell is ordinary; one that has ended its process is not."""
    if kind == "gap" or state == "lost":
        return "error"
    return "warning" if allowed is False or state == "rolled_back" else "info"


def _shown(fact: object) -> str:
    return fact if isinstance(fact, str) and fact.isascii() and fact.isalnum() else json.dumps(fact)


def _is_brief(name: str, fact: object) -> bool:
    return (
        isinstance(fact, str | int)
        and fact != ""
        and not name.endswith(_LONG)
        and (name, fact) not in (("state", "kept"), ("success", True), ("allowed", True))
    )


def _json_event(line: str) -> LogEvent | None:
    if not line.startswith("{"):
        return None
    try:
        facts = json.loads(line)
        time = datetime.fromisoformat(facts["time"]).timestamp()
        level = _known(facts["level"])
        about = {name: str(facts.get(name, "")) for name in FIELDS}
        return LogEvent(
            time=time,
            level=level,
            source=str(facts["logger"]),
            event=str(facts["event"]),
            error=str(facts.get("error", "")),
            tenant=about["tenant"],
            runtime=about["runtime"] or _runtime_in(str(facts["event"])),
            step=int(about["step"] or 0),
            trace=str(facts.get("trace", "")),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _plain_event(line: str) -> LogEvent | None:
    found = _PLAIN.fullmatch(line.rstrip("\n"))
    if found is None:
        return None
    time, level, source, text = found.groups()
    return LogEvent(
        time=datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp(),
        level=_known(level),
        source=source,
        event=without_secrets(text),
        runtime=_runtime_in(text),
    )


def _continued(event: LogEvent | None, line: str) -> LogEvent:
    text = without_secrets(line.rstrip("\n"))
    if event is None:
        return LogEvent(time=0.0, level="info", source="", event=text)
    return replace(event, error=f"{event.error}\n{text}".lstrip("\n"))


def _known(level: str) -> str:
    return level.lower() if level.lower() in LEVELS else "info"


def _runtime_in(text: str) -> str:
    found = _RUNTIME.search(text)
    return found[0] if found else ""


class LogTail:
    """A log file that grows, and may be replaced by a new one or cut: read from where it was read to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def lines(self) -> Iterator[str]:
        """The complete lines since the last call; none while there is no file."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            status = self._path.stat()
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
            file.seek(self._offset)
            while line := file.readline(MAX_LINE):
                if not line.endswith(b"\n") and len(line) < MAX_LINE:
                    return  # it is being written
                self._offset += len(line)
                yield line.decode("utf-8", "replace")


def described(event: LogEvent, tenants: Mapping[str, str], runtimes: Mapping[str, str]) -> str:
    """One line of plain text, and the lines of an error after it. tenants, runtimes: names of ids."""
    about = [
        f"{kind}={names.get(id, id)}"
        for kind, id, names in (("tenant", event.tenant, tenants), ("runtime", event.runtime, runtimes))
        if id
    ]
    about += [f"step={event.step}"] if event.step else []
    about += [f"trace={event.trace}"] if event.trace else []
    moment = datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
    brief = [f"{name}={_shown(fact)}" for name, fact in event.facts.items() if _is_brief(name, fact)]
    head = " ".join((moment, event.level.upper(), event.source or "-", event.event, *about, *brief))
    if "\n" not in event.error:
        return f"{head} error={_shown(event.error)}" if event.error else head
    return "\n  ".join((head, *event.error.splitlines()))
