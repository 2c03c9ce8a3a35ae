"""A kept state is the live one for a moment, and the present one again behind it: for whoever copies it.

Neither is it a step of the history nor is it stored: to everybody else the runtime has not moved. A process that
takes over meanwhile goes forward first, as it does after a patch that was left in the middle.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NotKeptError, UnavailableError
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.snapshots import TIMEOUT, check_target
from cenote_worker.patient_wait import PatientWait
from cenote_worker.results import Rollback
from cenote_worker.supervisor.edge import KeptReply
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

QUIET_SECONDS: Final = 2.0
"""For a runtime that has answered everything to have nothing under way."""

BUSY: Final = "a call of this runtime is under way; try again when it has been answered"

_LOOK_EVERY: Final = 0.005

_TRIES: Final = 3
"""A return is not carried out when the worker has just died, and asked for again then."""


@contextmanager
def visiting(runtime: HostedRuntime, to: int | str) -> Iterator[None]:
    """Inside, the live state is that after step `to`, or that of a label. Nobody else's call is sent meanwhile.

    Raises NotKeptError and UnavailableError with nothing done: when there is no such state, when the present one
    cannot be kept, while a call is under way. JailLostError when the jail ends meanwhile.
    """
    check_target(to)
    with _alone(runtime) as supervisor, runtime.patches.away(f"visit {secrets.token_hex(8)}"):
        if isinstance(to, int) and runtime.rerunning().is_between(to):
            raise NotKeptError(to)
        present = _kept(runtime)
        let_go = supervisor.hold((present, to))
        try:
            visited = _gone(supervisor, to)
            try:
                yield
            finally:
                _back(runtime, supervisor, present, visited)
        finally:
            let_go()


@contextmanager
def _alone(runtime: HostedRuntime) -> Iterator[Supervisor]:
    wait = PatientWait(QUIET_SECONDS)
    while True:
        with runtime.turn:
            supervisor = runtime.started()
            if not supervisor.busy:
                yield supervisor
                return
        if not wait.piece():
            raise UnavailableError(BUSY)
        time.sleep(_LOOK_EVERY)


def _kept(runtime: HostedRuntime) -> int:
    """The number that the present state is kept under."""
    kept = Delivery()
    runtime.rerunning().keep(kept, label="")
    outcome = kept.outcomes.get()
    if isinstance(outcome, KeptReply):
        return outcome.step
    raise _error(outcome)


def _gone(supervisor: Supervisor, to: int | str) -> int:
    outcome = _moved(supervisor, to)
    if isinstance(outcome, Rollback):
        return outcome.step
    raise _error(outcome)


def _back(runtime: HostedRuntime, supervisor: Supervisor, present: int, visited: int) -> None:
    outcome: Outcome = UnavailableError(BUSY)
    for _ in range(_TRIES):
        outcome = _moved(supervisor, present)
        if isinstance(outcome, Rollback):
            return
    # What everybody sees from now on is the state that was visited; its jail says which that is.
    if supervisor.death is None and visited in runtime.history.tree:
        runtime.history.moved(visited, "the state before a fork could not be had again")
    raise _error(outcome)


def _moved(supervisor: Supervisor, to: int | str) -> Outcome:
    label, step = (to, 0) if isinstance(to, str) else ("", to)
    gone = Delivery()
    supervisor.submit(
        JailRequest(Ask.ROLLBACK, jail_pb2.Request(), gone, timeout=TIMEOUT, step=step, label=label)
    )
    return gone.outcomes.get()


def _error(outcome: Outcome) -> Exception:
    return (
        outcome
        if isinstance(outcome, Exception)
        else UnavailableError("the jail has answered something else")
    )
