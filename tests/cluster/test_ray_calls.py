"""Asking actors: who is not there is waited for, and an answer is an answer, whatever it says."""

from __future__ import annotations

import pytest

from cenote_security.errors import UnknownRuntimeError
from cenote_worker.cluster.ray_calls import ask


@pytest.mark.timeout(30)
def test_a_refusal_is_told_at_once() -> None:
    """Also one that is a ValueError, as an actor is not there by one."""

    def refusing() -> object:
        raise UnknownRuntimeError("r")

    with pytest.raises(UnknownRuntimeError):
        ask(refusing, "locate", "r")
