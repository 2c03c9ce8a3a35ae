"""Runtimes whose workers end as soon as they are idle, and the effects of that."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.waiting import until

from cenote_security.errors import UnavailableError
from cenote_worker.supervisor import worker_failover
from cenote_worker.supervisor.worker_failover import WorkerPresence


def park_at_once(patch: pytest.MonkeyPatch) -> None:
    """In this process."""
    patch.setattr(worker_failover, "IDLE_SECONDS", 0.0)


def is_parked(runtime: Any) -> bool:
    """Whether the worker ends once it has reported its state."""
    with suppress(UnavailableError):  # then that state is not stored
        runtime.snapshot()
    supervisor = runtime.core.backend.supervisor
    until(lambda: _is_settled(supervisor))
    return supervisor._parking._presence is WorkerPresence.AWAY


def _is_settled(supervisor: Any) -> bool:
    with supervisor._lock:
        at_rest = supervisor._parking._presence in (WorkerPresence.AWAY, WorkerPresence.THERE)
        return at_rest and supervisor._parking._timer is None
