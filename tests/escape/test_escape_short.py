"""The short set that users run on their own machines holds here."""

from __future__ import annotations

import pytest
from tests.support.escape.arena import Arena

from cenote_security.attacks.escape_attempt import EscapeAttempt
from cenote_security.attacks.short_set_unsafe import SHORT


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", SHORT.attempts, ids=lambda attempt: attempt.name)
def test_the_short_set_holds(arena: Arena, attempt: EscapeAttempt) -> None:
    """Each attempt that `cenote doctor --attack` makes, with a neighbour and a check of the processes in addition."""
    arena.hold(attempt)
