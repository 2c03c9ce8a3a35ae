"""Every known network attack again, with a network: access to some names gives no access to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_network import NETWORK

from cenote_security.attacks.escape_attempt import EscapeAttempt
from cenote_security.errors import IsolationUnavailableError
from cenote_security.network import Allow


@pytest.fixture(scope="module")
def networked() -> Iterator[Arena]:
    try:
        arena = Arena("strict", network=Allow(["a.test"]))
    except IsolationUnavailableError as error:
        pytest.skip(str(error))
    yield arena
    arena.close()


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", NETWORK.attempts, ids=lambda attempt: attempt.name)
def test_a_proxy_opens_nothing_else(networked: Arena, attempt: EscapeAttempt) -> None:
    """An interface is up and a port may be connected to; listeners outside still get no connection."""
    networked.hold(attempt)
    assert () == networked.runtime.network_log
