"""No way to any listener, and no socket of a kind that data work does not need."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_network import NETWORK, SHARED_MEMORY

from cenote_security.attacks.escape_attempt import EscapeAttempt


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", NETWORK.attempts, ids=lambda attempt: attempt.name)
def test_nobody_is_reached(arena: Arena, attempt: EscapeAttempt) -> None:
    """No listener outside is reached, by port, path or abstract name."""
    arena.hold(attempt)


@pytest.mark.parametrize("attempt", SHARED_MEMORY.attempts, ids=lambda attempt: attempt.name)
def test_no_memory_is_shared(arena: Arena, attempt: EscapeAttempt) -> None:
    """A segment of the host cannot be opened, and a segment that a jail leaves is invisible to others."""
    segment = Path("/dev/shm", f"{arena.witnesses.folder.name}-host")
    segment.write_bytes(bytes(4096))
    segment.chmod(0o666)
    try:
        arena.hold(attempt)
    finally:
        segment.unlink()
    assert not Path("/dev/shm", arena.witnesses.folder.name).exists()
