"""No way to a file outside the jail, by any name, link, handle or former kernel bug."""

from __future__ import annotations

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_files import FILES

from cenote_security.attacks.escape_attempt import EscapeAttempt


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", FILES.attempts, ids=lambda attempt: attempt.name)
def test_files_outside_are_out_of_reach(arena: Arena, attempt: EscapeAttempt) -> None:
    """The secret stays unread, everything outside is unchanged."""
    arena.hold(attempt)
