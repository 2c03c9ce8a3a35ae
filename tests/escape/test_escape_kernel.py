"""No way through the kernel: namespaces, mounts, calls with a record of holes, privileges."""

from __future__ import annotations

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_kernel import DOORS, MOUNTS, NAMESPACES, PRIVILEGES

from cenote_security.attacks.escape_attempt import EscapeAttempt

ATTEMPTS = [attempt for family in (NAMESPACES, MOUNTS, DOORS, PRIVILEGES) for attempt in family.attempts]


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_the_kernel_gives_nothing(arena: Arena, attempt: EscapeAttempt) -> None:
    """Each call is refused, and every process of the jail keeps its filter and Landlock, without capabilities."""
    arena.hold(attempt)
