"""From machines into the log: each deed once, gaps recorded, whichever process is killed in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from tests.behaviour.gateway.test_gateway_server import SlowNodes

from cenote.gateway.audit.collector import AuditCollector, written_deeds
from cenote.gateway.audit.entries import Facts
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.audit.recorder import AuditRecorder
from cenote_worker.egress.ledger import Decision
from cenote_worker.tenancy.audit_events import BATCH, EventBatch, EventBuffer, EventOrigin, NetworkAuditEvent

KEY = b"k" * 32
ORIGIN = EventOrigin(tenant="tn_1", runtime="rt_1", policy="")


class Machines(SlowNodes):
    """Trails of processes, by machine; None for a machine that does not answer."""

    def __init__(self, trails: dict[str, list[EventBuffer] | None]) -> None:
        super().__init__()
        self.trails = trails

    def deeds(self, written: Mapping[str, int]) -> dict[str, list[EventBatch] | None]:
        return {
            node: None if trails is None else [each.read(written.get(each.source, 0)) for each in trails]
            for node, trails in self.trails.items()
        }


def note(trail: EventBuffer, count: int = 1) -> None:
    decision = Decision(at=0.0, kind="http", host="a.example", port=80, address="", allowed=True, reason="")
    for _ in range(count):
        trail.note(NetworkAuditEvent(origin=ORIGIN, decision=decision))


@contextmanager
def collecting(folder: Path, nodes: Machines) -> Iterator[AuditCollector]:
    """The gateway's collector; a second one at the same folder continues its log."""
    with closing(AuditLog(folder, KEY)) as log, AuditRecorder(log) as recorder:
        yield AuditCollector(recorder, nodes, folder)


def written(folder: Path) -> list[Facts]:
    """The final content of the log, which verifies."""
    assert verify(folder, KEY).broken is None
    return [entry.event.facts for entry in entries(folder) if entry.event.kind in ("network", "gap")]


def numbers(folder: Path, of: Callable[[Facts], bool] = lambda _facts: True) -> list[object]:
    return [facts["number"] for facts in written(folder) if of(facts)]


def test_each_deed_is_on_record_once(tmp_path: Path) -> None:
    """However often the collector polls, and however many deeds there are."""
    trail = EventBuffer("n1/1")
    with collecting(tmp_path, Machines({"n1": [trail]})) as collector:
        note(trail, 2 * BATCH + 1)
        for _ in range(3):
            collector.collect()
        note(trail)
        collector.collect()
    assert list(range(1, 2 * BATCH + 3)) == numbers(tmp_path)


def test_a_gateway_that_was_killed_writes_nothing_twice(tmp_path: Path) -> None:
    """It was killed before it acknowledged what it had written: its successor finds that in the log."""
    trail = EventBuffer("n1/1")
    nodes = Machines({"n1": [trail]})
    note(trail, 3)
    with collecting(tmp_path, nodes) as collector:
        collector.collect()
    note(trail)
    assert 1 == trail.read().first
    with collecting(tmp_path, nodes) as successor:
        successor.collect()
    assert [1, 2, 3, 4] == numbers(tmp_path)
    assert {"n1/1": 4} == written_deeds(tmp_path)


def test_what_had_no_room_is_a_gap(tmp_path: Path) -> None:
    """Recorded before what followed, with its size; once, also by a successor."""
    trail = EventBuffer("n1/1", room=2)
    nodes = Machines({"n1": [trail]})
    note(trail, 5)
    for _ in range(2):
        with collecting(tmp_path, nodes) as collector:
            collector.collect()
    facts = written(tmp_path)
    assert [(3, 3), (4, None), (5, None)] == [(each["number"], each.get("lost")) for each in facts]


def test_a_process_that_has_ended_is_told_of(tmp_path: Path) -> None:
    """What it had not handed over is unknown: the record says up to where it is known, once."""
    first, second = EventBuffer("n1/1"), EventBuffer("n1/2")
    nodes = Machines({"n1": [first, second]})
    note(first, 2)
    with collecting(tmp_path, nodes) as collector:
        collector.collect()
        nodes.trails = {"n1": [second]}
        collector.collect()
        collector.collect()
    gaps = [facts for facts in written(tmp_path) if "lost" in facts]
    assert [("n1/1", 2, None)] == [(each["source"], each["number"], each["lost"]) for each in gaps]


def test_a_machine_that_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    """Its deeds are recorded when it answers; once it leaves the cluster, the end of its processes is recorded."""
    trail = EventBuffer("n1/1")
    nodes = Machines({"n1": [trail]})
    with collecting(tmp_path, nodes) as collector:
        note(trail)
        collector.collect()
        nodes.trails = {"n1": None}
        note(trail)
        collector.collect()
        nodes.trails = {"n1": [trail]}
        collector.collect()
        assert [1, 2] == numbers(tmp_path)
        nodes.trails = {}
        collector.collect()
    assert [2] == numbers(tmp_path, lambda facts: "lost" in facts)
