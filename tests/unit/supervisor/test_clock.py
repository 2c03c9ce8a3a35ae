"""The clock of a cell: interrupt first, kill after a grace."""

from __future__ import annotations

from cenote_worker.supervisor.running_request import CellClock


def test_timeout_interrupts_then_kills() -> None:
    """At the timeout one interrupt, two seconds later the kill, nothing before or between."""
    clock = CellClock(started=10.0, timeout=5.0, grace=2.0)
    assert clock.due(14.9) is None
    assert clock.due(15.0) == "interrupt"
    assert clock.expired
    assert clock.due(16.9) is None
    assert clock.due(17.0) == "kill"


def test_a_wish_interrupts_too_but_is_no_timeout() -> None:
    """A caller's interrupt starts the same grace, once, and is not reported as a timeout."""
    clock = CellClock(started=0.0, timeout=None)
    assert clock.deadline is None
    clock.interrupt(3.0)
    clock.interrupt(4.0)
    assert clock.deadline == 5.0
    assert clock.due(5.0) == "kill"
    assert not clock.expired
