"""A cell that takes its worker over harms its own runtime and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.escape.arena import Arena, outcome
from tests.support.escape.attempts_tampering import FRAMES, TAMPERING
from tests.waiting import PATIENCE

from cenote.runtime import PythonRuntime
from cenote_security.attacks.escape_attempt import EscapeAttempt

ATTEMPTS = [attempt for family in (TAMPERING, FRAMES) for attempt in family.attempts]


@pytest.fixture
def victim(arena: Arena) -> Iterator[PythonRuntime]:
    """A jail that is not needed afterwards."""
    with PythonRuntime(sandbox=arena.policy) as runtime:
        yield runtime


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_a_worker_that_is_taken_over(arena: Arena, victim: PythonRuntime, attempt: EscapeAttempt) -> None:
    """The client gets results or a clear loss, in time; a fresh jail of the same runtime works as usual."""
    result = victim.execute(attempt.cell(arena.facts()), timeout=15)
    assert not attempt.outcomes or outcome(result) in attempt.outcomes, (attempt.reference, result)
    for _ in range(2):
        assert victim.execute("6 * 7", timeout=PATIENCE).state in ("kept", "lost")
    victim.reset()
    assert "42" == victim.execute("6 * 7").value
    assert [] == arena.breaches(result), attempt.reference
