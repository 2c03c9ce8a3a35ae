"""Audit entries on their way to the record: numbered, stored until they are written, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.egress.ledger import Decision
from cenote_worker.tenancy.audit_events import (
    BATCH,
    EventBuffer,
    EventOrigin,
    NetworkAuditEvent,
    RuntimeAuditEvent,
)

ORIGIN = EventOrigin(tenant="tn_1", runtime="rt_1", policy="")


def deed(port: int) -> NetworkAuditEvent:
    decision = Decision(
        at=0.0, kind="tunnel", host="a.example", port=port, address="", allowed=False, reason="no"
    )
    return NetworkAuditEvent(origin=ORIGIN, decision=decision)


def ports(deeds: tuple[RuntimeAuditEvent, ...]) -> list[int]:
    return [each.decision.port for each in deeds if isinstance(each, NetworkAuditEvent)]


def filled(count: int, room: int = 100) -> EventBuffer:
    trail = EventBuffer("n1/1", room)
    for number in range(1, count + 1):
        trail.note(deed(number))
    return trail


def test_deeds_are_kept_until_they_are_written_down() -> None:
    """A reader that is killed returns with its earlier position, and gets the same entries again."""
    trail = filled(3)
    assert trail.read() == trail.read()
    again = trail.read(written=2)
    assert (3, [3]) == (again.first, ports(again.deeds))
    assert (4, []) == (trail.read(written=3).first, ports(trail.read(written=3).deeds))


def test_at_its_room_nothing_is_lost() -> None:
    """One past it the oldest is dropped, and the loss is reported until the following entries are written."""
    assert (0, 1) == (filled(5, room=5).read().lost, filled(5, room=5).read().first)
    trail = filled(6, room=5)
    assert (1, 2) == (trail.read().lost, trail.read().first)
    assert 0 == trail.read(written=2).lost


def test_a_batch_is_bounded() -> None:
    """It says that there are more."""
    trail = filled(BATCH + 1, room=2 * BATCH)
    first = trail.read()
    assert (BATCH, True) == (len(first.deeds), first.more)
    second = trail.read(written=BATCH)
    assert ([BATCH + 1], False) == (ports(second.deeds), second.more)


def test_a_reader_that_knows_more_than_there_is_changes_nothing() -> None:
    """Like a reader that confuses two processes."""
    trail = filled(2)
    assert (3, ()) == (trail.read(written=99).first, trail.read(written=99).deeds)
    trail.note(deed(3))
    assert [3] == ports(trail.read(written=2).deeds)


@given(st.lists(st.sampled_from(["note", "read", "acknowledge", "flood"]), max_size=60))
def test_each_number_is_read_once_or_told_as_lost(doings: list[str]) -> None:
    """For any order of operations: recorded and lost entries together are all entries."""
    trail, done, written = EventBuffer("n1/1", room=3), 0, 0
    for doing in [*doings, "read"]:
        if doing in ("note", "flood"):
            for _ in range(1 if doing == "note" else 5):
                done += 1
                trail.note(deed(done))
        else:
            batch = trail.read(written)
            assert batch.lost >= batch.first - 1 - written
            assert list(range(batch.first, done + 1)) == ports(batch.deeds)
            written = batch.first - 1 + len(batch.deeds)
    assert done == written
