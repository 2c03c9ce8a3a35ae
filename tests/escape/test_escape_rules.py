"""Code that gets past a checker of source text gets no further: rules are advice, the kernel is the wall."""

from __future__ import annotations

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_rules import RULES

from cenote_security.attacks.escape_attempt import EscapeAttempt


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", RULES.attempts, ids=lambda attempt: attempt.name)
def test_bypassing_rules_gains_nothing(arena: Arena, attempt: EscapeAttempt) -> None:
    """The CVEs of other sandboxes' checkers, tried without any checker."""
    arena.hold(attempt)
