"""Notes on host calls, taken on the thread that serves all jails: bounded per step, whatever its jail passes."""

from __future__ import annotations

import pytest

from cenote_worker.history import host_calls
from cenote_worker.history.host_calls import HostCallNotes
from cenote_worker.runtime.replay import HostCallReplay
from cenote_worker.supervisor.channels.host_calls import HostCall
from cenote_worker.transport.content import Content


def call(number: int, data: bytes) -> HostCall:
    return HostCall(number, "f", "", Content(size=len(data), count=0, inline=data), None, 0)


def answered(notes: HostCallNotes, number: int) -> None:
    notes.answered(number, Content(size=2, count=1, inline=b"ok"))


def test_so_many_bytes_of_a_step_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same memory, passed repeatedly, is digested up to the limit; the next step has its own limit."""
    monkeypatch.setattr(host_calls, "MAX_LOOKED_AT", 30)
    notes = HostCallNotes()
    for number in range(5):
        notes.called(call(number, bytes(10)))
    calls, _ = notes.take()
    assert [True, True, True, False, False] == [bool(each.digest) for each in calls]
    notes.called(call(9, bytes(10)))
    assert notes.take()[0][0].digest


def test_calls_beyond_the_limit_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted, and cost nothing more."""
    monkeypatch.setattr(host_calls, "MAX_CALLS", 1)
    looked_at: list[Content] = []
    monkeypatch.setattr(host_calls, "digest_of", lambda content: looked_at.append(content) or "d")
    notes = HostCallNotes()
    for number in range(3):
        notes.called(call(number, b"x"))
    assert (1, 2) == (len(looked_at), notes.take()[1])


def test_a_second_run_looks_at_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So recorded calls are answered from the record, and others are refused, in every run."""
    monkeypatch.setattr(host_calls, "MAX_LOOKED_AT", 20)
    notes = HostCallNotes()
    for number in range(3):
        notes.called(call(number, bytes([number]) * 10))
        answered(notes, number)
    replay = HostCallReplay(notes.take()[0], tentative=False)
    answers = [replay.answer(call(number, bytes([number]) * 10), "external") for number in range(3)]
    assert [True, True, False] == [isinstance(answer, Content) for answer in answers]
