"""A worker that has nothing to do for a while ends, where the warden can make another one that is at the same state.

Only where that is what the worker began with, and what was bound since: a copy would lack its pipes and threads, and
of the beginning there are none. The client says when, so that no request is under way meanwhile. It hears of each
message what has come of it, whatever else happens to the worker.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from cenote_worker.zygote import usage
from cenote_worker.zygote.origin import Origin
from cenote_worker.zygote.shelf import Shelf
from cenote_worker.zygote.watch import NOBODY, Watch, revive, say, wake

_MOST_TRIES: Final = 3
"""Of making it again for one message. What it is to be at is kept all the same."""


def leave(state: Watch, asked: int, step: int) -> None:
    """End the worker until `call`, if that is at the end of this step and nobody will know."""
    state.parking.leaving = asked
    if state.alive and state.worker != NOBODY and _may_leave(state.shelf, state.worker, step):
        os.kill(state.worker, signal.SIGKILL)
    else:
        stay(state)


def _may_leave(shelf: Shelf, worker: int, step: int) -> bool:
    """Whether a worker that does nothing has said that it is at the end of that step, and that can be had again.

    Nor is anything else at work in the jail: what the worker has begun would go on without it, or end with it.
    """
    base = shelf.base
    if base is None or base.step != step or not isinstance(base.copy, Origin):
        return False
    return shelf.pids.issuperset(pid for pid in usage.descendants(os.getpid()) if pid != worker)


def left(state: Watch) -> None:
    """The worker has ended, as it was to, or before it had come."""
    state.worker, state.alive = NOBODY, True  # nothing is wrong with what it was at
    stay(state)
    if state.parking.coming:
        _fetch(state)


def stay(state: Watch) -> None:
    """Whoever wants the worker to end hears whether it has."""
    if state.parking.leaving:
        say(state, {"op": "parked", "id": state.parking.leaving, "is_parked": state.worker == NOBODY})
        state.parking.leaving = 0


def call(state: Watch, asked: int) -> None:
    """Have a worker there. One that ends just now was told to by a client whose successor asks."""
    state.parking.coming = asked
    if state.worker == NOBODY:
        _fetch(state)
    elif not state.parking.leaving and state.alive:
        come(state)


def _fetch(state: Watch) -> None:
    """Fork the worker anew."""
    kept, state.parking.tries = state.shelf.base, state.parking.tries + 1
    may_try = state.parking.tries <= _MOST_TRIES
    if kept is not None and may_try and (pid := wake(state, kept, is_parked=True)) is not None:
        revive(state, kept, pid)
        state.tries = 0
    else:
        come(state)


def come(state: Watch) -> None:
    """Whoever wants a worker hears of it; of NOBODY where none could be made."""
    if state.parking.coming:
        say(state, {"op": "unparked", "id": state.parking.coming, "pid": state.worker})
        state.parking.coming = state.parking.tries = 0
