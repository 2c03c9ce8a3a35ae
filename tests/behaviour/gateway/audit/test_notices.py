"""What operators did is recorded in the audit log through the gateway, in order, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.events import Subject, tenant_changed, token_changed
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import entries
from cenote.gateway.audit.recorder import AuditRecorder, Notices
from cenote.gateway.errors import AuditUnavailableError
from cenote.gateway.store.database import Database

EVENTS = [
    tenant_changed(Subject(tenant="tn"), "created", "acme"),
    token_changed(Subject(tenant="tn"), "issued", "id", ["teams", "admin"]),
    token_changed(Subject(tenant="tn"), "revoked", "id"),
]


def recorded(folder: Path) -> list[AuditEvent]:
    return [entry.event for entry in entries(folder)]


def test_notices_are_put_on_record(database: Database, tmp_path: Path) -> None:
    """As they were left; and not again the next time."""
    for event in EVENTS:
        Notices(database).leave(event)
    with AuditLog(tmp_path / "audit", b"k" * 32) as log, AuditRecorder(log) as recorder:
        Notices(database).hand_over(recorder)
        Notices(database).hand_over(recorder)
        Notices(database).leave(EVENTS[0])
        Notices(database).hand_over(recorder)
    assert [*EVENTS, EVENTS[0]] == recorded(tmp_path / "audit")


def test_what_cannot_be_recorded_stays(database: Database, tmp_path: Path) -> None:
    """The next gateway records it."""
    Notices(database).leave(EVENTS[0])
    with AuditLog(tmp_path / "audit", b"k" * 32) as log:
        recorder = AuditRecorder(log)
        recorder.close()
        with pytest.raises(AuditUnavailableError):
            Notices(database).hand_over(recorder)
        with AuditRecorder(log) as other:
            Notices(database).hand_over(other)
    assert [EVENTS[0]] == recorded(tmp_path / "audit")
