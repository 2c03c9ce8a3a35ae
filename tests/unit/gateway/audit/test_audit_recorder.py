"""Many callers and one disk: shared writes, no event accepted that cannot be recorded, no accepted event lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cenote.gateway.audit.entries import AuditEvent, Mark
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.audit.recorder import AuditRecorder
from cenote.gateway.errors import AuditUnavailableError
from cenote_security.errors import UsageError

KEY = b"k" * 32


def event(number: int) -> AuditEvent:
    return AuditEvent(kind="test", facts={"number": number})


class Gate:
    """Stands in for the disk's sync: counts calls, blocks while it is shut, fails on request."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.count = 0
        self._sync: Callable[[int], None] = os.fdatasync

    def __call__(self, fd: int) -> None:
        self.count += 1
        self.reached.set()
        assert self.open.wait(30)
        self._sync(fd)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(os, "fdatasync", gate)
    return gate


def test_what_is_recorded_is_on_the_disk(tmp_path: Path) -> None:
    """The event is on the disk once the future is done; each caller's order is preserved."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder, ThreadPoolExecutor(8) as pool:

        def record(caller: int) -> None:
            for number in range(10):
                mark = recorder.record(event(caller * 100 + number)).result(30)
                assert mark.number <= verify(tmp_path, KEY).last.number

        list(pool.map(record, range(8)))
    numbers = [int(str(entry.event.facts["number"])) for entry in entries(tmp_path)]
    assert {caller * 100 + number for caller in range(8) for number in range(10)} == set(numbers)
    for caller in range(8):
        own = [number for number in numbers if number // 100 == caller]
        assert sorted(own) == own
    assert verify(tmp_path, KEY).broken is None


def test_callers_share_a_sync(tmp_path: Path, gate: Gate) -> None:
    """Events that arrive during a write go with the next one: two writes for a hundred events."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder:
        gate.open.clear()
        gate.reached.clear()
        before = gate.count
        futures = [recorder.record(event(0))]
        assert gate.reached.wait(30)
        futures += [recorder.record(event(number)) for number in range(1, 100)]
        assert [False] * 100 == [future.done() for future in futures]
        gate.open.set()
        assert {1, 100} == {future.result(30).number for future in futures}
        assert 4 == gate.count - before  # entries and head, twice


def test_so_many_events_may_wait_and_no_more(tmp_path: Path, gate: Gate) -> None:
    """A slow disk does not fill the memory: the caller learns that its event is not recorded."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log, backlog=3) as recorder:
        gate.open.clear()
        futures = [recorder.record(event(number)) for number in range(3)]
        with pytest.raises(AuditUnavailableError, match="3 entries wait for the disk"):
            recorder.record(event(3))
        gate.open.set()
        assert 3 == futures[-1].result(30).number
        recorder.record(event(4)).result(30)


def test_closing_writes_what_waits(tmp_path: Path, gate: Gate) -> None:
    """It accepts nothing more; closing twice is allowed."""
    with AuditLog(tmp_path, KEY) as log:
        recorder = AuditRecorder(log)
        futures = [recorder.record(event(number)) for number in range(50)]
        recorder.close()
        recorder.close()
        assert [True] * 50 == [future.done() for future in futures]
        with pytest.raises(AuditUnavailableError, match="closed"):
            recorder.record(event(50))
    assert 50 == verify(tmp_path, KEY).last.number


def test_what_nobody_expected_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that waits for its event must not wait for ever."""
    monkeypatch.setattr("cenote.gateway.audit.recorder._RETRY_SECONDS", 0.01)
    append, calls = AuditLog.append, []

    def stumbles(log: AuditLog, *events: AuditEvent) -> Mark:
        calls.append(events)
        if len(calls) == 1:
            raise MemoryError
        return append(log, *events)

    monkeypatch.setattr(AuditLog, "append", stumbles)
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder:
        assert 1 == recorder.record(event(0)).result(30).number


def test_a_caller_that_does_not_wait_cancels_nothing(tmp_path: Path, gate: Gate) -> None:
    """An accepted event is recorded whatever becomes of its caller."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder:
        gate.open.clear()
        assert not recorder.record(event(1)).cancel()
        gate.open.set()
    assert 1 == verify(tmp_path, KEY).last.number


def test_an_event_that_is_too_large_is_its_callers_mistake(tmp_path: Path) -> None:
    """The error is raised at once; the other events are recorded."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder:
        with pytest.raises(UsageError, match="up to"):
            recorder.record(AuditEvent(kind="test", facts={"text": "x" * 300_000}))
        assert 1 == recorder.record(event(1)).result(30).number


@pytest.mark.slow
def test_while_the_disk_is_full_nothing_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was accepted before stays queued and is written when there is space; then recording continues."""
    with AuditLog(tmp_path, KEY) as log, AuditRecorder(log) as recorder:
        tried = threading.Event()

        def full(fd: int, content: bytes, offset: int) -> int:
            tried.set()
            raise OSError(28, os.strerror(28))

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            kept = recorder.record(event(1))
            assert tried.wait(30)
            refused = refusal(recorder)
        assert "No space left" in refused
        kept.result(30)
        recorder.record(event(2)).result(30)
    numbers = [entry.event.facts["number"] for entry in entries(tmp_path)]
    assert (1, 2) == (numbers[0], numbers[-1])
    assert verify(tmp_path, KEY).broken is None


def test_what_could_not_be_written_in_the_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting caller gets an error and does not wait for ever."""
    with AuditLog(tmp_path, KEY) as log:
        recorder = AuditRecorder(log)
        log.close()
        future = recorder.record(event(1))
        refusal(recorder)
        recorder.close()
        with pytest.raises(AuditUnavailableError, match="it was closed"):
            future.result(30)


def refusal(recorder: AuditRecorder) -> str:
    """Why the recorder accepts nothing, once it knows."""
    while True:
        try:
            recorder.record(event(0))
        except AuditUnavailableError as error:
            return str(error)
        threading.Event().wait(0.001)  # the recorder's thread has yet to see the failure
