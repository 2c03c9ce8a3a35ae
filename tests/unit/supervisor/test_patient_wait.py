"""Which time counts as waiting: standstills of the machine do not."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from cenote_worker.process.patient_wait import PIECE, PatientWait, is_ready
from cenote_worker.zygote import spawn
from cenote_worker.zygote.worker_start import READY


def clock(*times: float) -> Iterator[float]:
    """Returns the given times, and then the last one for ever."""
    yield from times
    while True:
        yield times[-1]


def test_it_is_spent_in_pieces() -> None:
    """The last may be a smaller one."""
    wait = PatientWait(1.25, partial(next, clock(0.0, 0.0, 0.5, 1.0, 1.25)))
    assert [PIECE, PIECE, 0.25, 0.0, 0.0] == [wait.piece() for _ in range(5)]


def test_what_comes_early_is_not_waited_for() -> None:
    """Each check uses up the time that it took."""
    wait = PatientWait(1.0, partial(next, clock(0.0, 0.0, 0.1, 0.6, 0.9)))
    assert [0.5, 0.5, 0.4, 0.1] == [round(wait.piece(), 9) for _ in range(4)]


def test_a_standstill_counts_as_a_piece() -> None:
    """However long it was."""
    wait = PatientWait(4 * PIECE, partial(next, clock(0.0, 60.0, 120.0, 180.0, 240.0)))
    assert [PIECE, PIECE, PIECE, 0.0] == [wait.piece() for _ in range(4)]


def test_what_comes_in_time_is_ready() -> None:
    """If nothing arrives, the full time is waited."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_ready(ours, 0.02)
        assert is_ready(ours, 0.02, select.POLLOUT)
        theirs.send(b"x")
        assert is_ready(ours, 0.02)


def test_a_jail_that_was_ready_while_the_machine_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message has arrived when the machine continues, and is read then."""
    stood_still = partial(PatientWait, clock=partial(next, clock(0.0, 10 * spawn.START_SECONDS)))
    monkeypatch.setattr(spawn, "PatientWait", stood_still)
    reader, writer = os.pipe()
    os.write(writer, READY)
    try:
        assert spawn._await_ready(reader) is None
    finally:
        os.close(reader)
        os.close(writer)
