"""What a warden knows of its worker, and how it suspends one that is idle.

Programs may have kept the number of the worker's process, so a process that takes its place has the same number. In
the first pid namespace that a jail has to itself, a file sets which number comes next (`ns_last_pid`, see the
kernel's Documentation/admin-guide/sysctl/kernel.rst). The number is free when the worker has died. Another process
that forks in between gets it first; then the worker has a different one.

A worker that has nothing to do for a while ends, where the warden can make another one that is at the same state:
only where that is the initial state and what was bound since. A copy would lack its pipes and threads, and of the
initial state there are none. The client says when, so that no request is under way meanwhile. It gets an answer to
each of these messages, whatever else happens to the worker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.jail.snapshots.protocol import Message
from cenote_worker.zygote import processes
from cenote_worker.zygote.warden.programs import AttendedPrograms
from cenote_worker.zygote.warden.snapshot_cost_monitor import SnapshotCostMonitor
from cenote_worker.zygote.warden.snapshot_store import SavedState, SnapshotStore
from cenote_worker.zygote.worker_start import InitialState

_MAX_TEXT: Final = 32


@dataclass(frozen=True, slots=True)
class WorkerNumber:
    """pid: of the first worker. last_pid: see Level; -1 where numbers cannot be chosen."""

    pid: int
    last_pid: int = -1

    @contextmanager
    def next(self) -> Iterator[None]:
        """The next process that begins has the worker's number; those after it go on from where they were, so that of
        two that began in one tick of the clock the one with the higher number is the younger.
        """
        last = self._read()
        if last is None:
            yield
            return
        self._write(self.pid - 1)
        try:
            yield
        finally:
            self._write(last)

    def _read(self) -> int | None:
        if self.last_pid < 0:
            return None
        try:
            return int(os.pread(self.last_pid, _MAX_TEXT, 0))
        except (OSError, ValueError):
            return None

    def _write(self, last: int) -> None:
        with suppress(OSError):
            os.pwrite(self.last_pid, str(last).encode(), 0)


NOBODY: Final = 0
"""In the place of the worker's pid."""

AT_ONCE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
"""How a warden sends: it never waits."""


@dataclass(kw_only=True)
class Suspension:
    """Numbers of the messages that want it, 0 for none. leaving: that the worker ends. coming: that one is there.

    tries: how many came for that, and died before they had said that they work.
    """

    leaving: int = 0
    coming: int = 0
    tries: int = 0

    @property
    def expects_end(self) -> bool:
        """Whether that of the worker changes nothing: it was wanted, or another one is forked."""
        return bool(self.leaving or self.coming)


@dataclass(kw_only=True)
class WardenState:
    """State of a warden. worker: pid of the one that lives, or NOBODY.

    oom_kills: the machine's count when the jail started. killed: whether it was told to kill the worker. wanted: the
    state that is to go on after that, if not the newest, and the number of the message that wants it. told: the
    worker, of the versions of files that copies have. alive: False until a worker that has come of a copy has said
    that it works. tries: how many came one after the other of that copy and died before they had answered anything.
    number: that each worker has. programs: that run beside it. cpu: microseconds of processor time that workers have
    taken which have ended.
    """

    worker: int
    control: socket.socket
    line: socket.socket
    store: SnapshotStore
    oom_kills: int
    pulse: SnapshotCostMonitor
    number: WorkerNumber
    programs: AttendedPrograms
    cpu: int = 0
    killed: bool = False
    alive: bool = True
    tries: int = 0
    wanted: tuple[int, SavedState] | None = None
    told: dict[str, object] = field(default_factory=dict)
    suspension: Suspension = field(default_factory=Suspension)


def wake(state: WardenState, kept: SavedState, *, is_parked: bool = False) -> int | None:
    """See Kept.wake. No worker is there."""
    with state.number.next():
        return kept.wake(state.cpu, is_parked=is_parked)


def revive(state: WardenState, kept: SavedState, pid: int) -> None:
    """This process, come of what was kept, is the worker now."""
    state.worker, state.killed, state.alive, state.told = pid, False, False, {}
    state.tries += 1
    state.oom_kills = processes.oom_kills()
    state.pulse.copied(pid)
    if pid == kept.copy.pid:
        state.store.forget(pid)


def tell_client(state: WardenState, message: Message) -> None:
    """The client is trusted but may be gone, or slow: a warden never waits for it."""
    with suppress(OSError):
        state.control.send(json.dumps(message).encode(), AT_ONCE)


_MOST_TRIES: Final = 3
"""Of making it again for one message. What it is to be at is kept all the same."""


def leave(state: WardenState, asked: int, step: int) -> None:
    """End the worker until `call`, if that is at the end of this step and nobody will know."""
    state.suspension.leaving = asked
    if state.alive and state.worker != NOBODY and _may_leave(state.store, state.worker, step):
        os.kill(state.worker, signal.SIGKILL)
    else:
        stay(state)


def _may_leave(store: SnapshotStore, worker: int, step: int) -> bool:
    """Whether a worker that does nothing has said that it is at the end of that step, and that can be had again.

    Nor is anything else at work in the jail: what the worker has begun would go on without it, or end with it.
    """
    base = store.base
    if base is None or base.step != step or not isinstance(base.copy, InitialState):
        return False
    return store.pids.issuperset(pid for pid in processes.descendants(os.getpid()) if pid != worker)


def left(state: WardenState) -> None:
    """The worker has ended, as it was to, or before it had come."""
    state.worker, state.alive = NOBODY, True  # nothing is wrong with what it was at
    stay(state)
    if state.suspension.coming:
        _fetch(state)


def stay(state: WardenState) -> None:
    """Whoever wants the worker to end hears whether it has."""
    if state.suspension.leaving:
        tell_client(
            state, {"op": "parked", "id": state.suspension.leaving, "is_parked": state.worker == NOBODY}
        )
        state.suspension.leaving = 0


def call(state: WardenState, asked: int) -> None:
    """Have a worker there. One that ends just now was told to by a client whose successor asks."""
    state.suspension.coming = asked
    if state.worker == NOBODY:
        _fetch(state)
    elif not state.suspension.leaving and state.alive:
        come(state)


def _fetch(state: WardenState) -> None:
    """Fork the worker anew."""
    kept, state.suspension.tries = state.store.base, state.suspension.tries + 1
    may_try = state.suspension.tries <= _MOST_TRIES
    if kept is not None and may_try and (pid := wake(state, kept, is_parked=True)) is not None:
        revive(state, kept, pid)
        state.tries = 0
    else:
        come(state)


def come(state: WardenState) -> None:
    """Whoever wants a worker hears of it; of NOBODY where none could be made."""
    if state.suspension.coming:
        tell_client(state, {"op": "unparked", "id": state.suspension.coming, "pid": state.worker})
        state.suspension.coming = state.suspension.tries = 0
