"""No way to another process: through /proc, by signals, by tracing, by descriptors."""

from __future__ import annotations

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_processes import COMMON, DESCRIPTORS, PROC, SIGNALS, TRACING

from cenote_security.attacks.escape_attempt import EscapeAttempt

ATTEMPTS = [
    attempt for family in (PROC, SIGNALS, TRACING, DESCRIPTORS, COMMON) for attempt in family.attempts
]


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_processes_outside_are_out_of_reach(arena: Arena, attempt: EscapeAttempt) -> None:
    """No outside process is read, signalled, traced or slowed; the machine's parameters stay unchanged."""
    arena.hold(attempt)
