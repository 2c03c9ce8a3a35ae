"""Collects audit events of the machines into the log: each event once, and missing ones as a gap.

Machines keep an event, under a unique number, until the gateway acknowledges it. A gateway that was killed between
recording and acknowledging an event finds its number in the log, and does not record it again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Protocol

from cenote.gateway.audit.entries import AuditEvent, BrokenLineError, Mark, parse_line
from cenote.gateway.audit.events import deed_done, deeds_lost
from cenote.gateway.audit.folder import log_files, read_lines
from cenote.gateway.audit.recorder import AuditRecorder
from cenote.gateway.machines.nodes import Nodes
from cenote_worker.tenancy.audit_events import EventBatch

ROUNDS: Final = 20
"""Rounds of one collection: a source that floods the log must not delay other work."""

_TAIL: Final = 2
"""Files of the log in which a former gateway's last events are looked up: many times what could be unacknowledged."""

_SOURCE: Final = b'"source":"'
_NO_ROOM: Final = "more happened there than it has room for, and it was not fetched in time"
_ENDED: Final = "the process has ended; what it had not handed over is lost, if there was anything"


Reports = Mapping[str, list[EventBatch] | None]
"""Batches of each source, by machine; None for a machine that does not answer."""


class CollectorListener(Protocol):
    """Gets what a collector fetches, on its thread."""

    def heard(self, reports: Reports) -> None: ...

    def wrote(self, deeds: EventBatch, after: int) -> None:
        """The batch is recorded; events with numbers up to `after` were recorded before."""


class AuditCollector:
    """For one gateway. Thread-safe."""

    def __init__(
        self, recorder: AuditRecorder, nodes: Nodes, folder: Path, listener: CollectorListener | None = None
    ) -> None:
        """folder: of the log that the recorder writes."""
        self._recorder = recorder
        self._nodes = nodes
        self._folder = folder
        self._listener = listener
        self._turn = threading.Lock()
        self._written: dict[str, int] | None = None
        self._met: dict[str, set[str]] = {}
        """Sources that each machine has reported."""

    def collect(self) -> None:
        """Fetches outstanding events and syncs them to the disk. Raises AuditUnavailableError, UnavailableError."""
        with self._turn:
            if self._written is None:
                self._written = written_deeds(self._folder)
            for _ in range(ROUNDS):
                if not self._fetch(self._written):
                    return

    def _fetch(self, written: dict[str, int]) -> bool:
        """Returns whether there is more."""
        told = self._nodes.deeds(dict(written))
        if self._listener is not None:
            self._listener.heard(told)
        batches = [batch for each in told.values() for batch in each or ()]
        for batch in batches:
            self._write(batch, written)
        self._mourn(told, written)
        return any(batch.more for batch in batches)

    def _write(self, batch: EventBatch, written: dict[str, int]) -> None:
        waiting: list[tuple[int, Future[Mark]]] = []
        before = written.get(batch.source, 0)
        try:
            for number, event in _events(batch, before):
                waiting.append((number, self._recorder.record(event)))
        finally:
            for number, recorded in waiting:
                recorded.result()
                written[batch.source] = number
        if self._listener is not None:
            self._listener.wrote(batch, before)

    def _mourn(self, told: Reports, written: dict[str, int]) -> None:
        """Records for each source that has ended up to which number its events are in the log."""
        for node in list(self._met):
            batches = told.get(node, [])
            if batches is None:
                continue
            for source in sorted(self._met[node] - {batch.source for batch in batches}):
                number = written.get(source, 0)
                self._recorder.record(deeds_lost(source, number, None, _ENDED)).result()
        self._met = {
            node: self._met.get(node, set()) if batches is None else {batch.source for batch in batches}
            for node, batches in told.items()
        }


def _events(batch: EventBatch, written: int) -> list[tuple[int, AuditEvent]]:
    """Events that are not recorded yet, by number."""
    found = []
    if batch.lost and batch.first - 1 > written:
        lost = min(batch.lost, batch.first - 1 - written)
        found.append((batch.first - 1, deeds_lost(batch.source, batch.first - 1, lost, _NO_ROOM)))
    numbered = enumerate(batch.deeds, start=batch.first)
    return found + [
        (number, deed_done(deed, batch.source, number)) for number, deed in numbered if number > written
    ]


def written_deeds(folder: Path) -> dict[str, int]:
    """The number up to which each source's events are recorded, as far as the end of the log shows."""
    found: dict[str, int] = {}
    for path in log_files(folder)[-_TAIL:]:
        for line in read_lines(path):
            if _SOURCE not in line.content:
                continue
            try:
                facts = parse_line(line.content).event.facts
            except BrokenLineError:
                continue  # verification reports it
            source, number = facts.get("source"), facts.get("number")
            if isinstance(source, str) and isinstance(number, int):
                found[source] = max(number, found.get(source, 0))
    return found
