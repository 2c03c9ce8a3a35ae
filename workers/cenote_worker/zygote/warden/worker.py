"""The warden's state about its worker, and the suspension of an idle worker.

Programs may have stored the worker's pid, so a process that replaces the worker gets the same pid. In the first pid
namespace of a jail, a file sets the next pid (`ns_last_pid`, see the kernel's
Documentation/admin-guide/sysctl/kernel.rst). The pid is free when the worker has died. If another process forks in
between, it gets that pid, and the worker a different one.

An idle worker is ended if the warden can make another one in the same state: only if that is the initial state with
some bindings. A copy would lack its pipes and threads; the initial state has none. The client says when, so that no
request is running meanwhile. It gets an answer to each of these messages, whatever else happens to the worker.
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

from cenote_worker.jail.snapshots.protocol import Message, are_cells
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
        """Inside, the next process gets the worker's pid. Later ones continue the former sequence, so that of two
        that began in one clock tick the one with the higher pid is the younger.
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


_SESSION_SECONDS: Final = 1.0
"""Wait for copies that have not run yet. A program may have stopped one; then the worker gets another pid."""

NOBODY: Final = 0
"""In place of the worker's pid while there is no worker."""

AT_ONCE: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
"""How a warden sends: it never waits."""


@dataclass(kw_only=True)
class Suspension:
    """Numbers of the pending messages, 0 for none. leaving: wants the worker to end. coming: wants a worker.

    tries: workers forked for that which died before they reported.
    """

    leaving: int = 0
    coming: int = 0
    tries: int = 0

    @property
    def expects_end(self) -> bool:
        """Whether the worker's end is expected: it was requested, or another worker is being forked."""
        return bool(self.leaving or self.coming)


@dataclass(kw_only=True)
class WardenState:
    """State of a warden. worker: pid of the one that lives, or NOBODY.

    oom_kills: the machine's count when the jail started. killed: whether a message said to kill the worker. wanted:
    the state to continue from after that, if not the newest, and the number of the message that wants it. told: the
    last message to the worker about the file versions of copies. alive: False until a worker made from a copy has
    reported that it works. tries: successive workers of that copy that died before they answered anything.
    number: the pid of all workers. programs: those that run beside it. cpu: microseconds of processor time used by
    workers that have ended.
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
    """See SavedState.wake. Call it only without a worker.

    A copy begins a session of its own when it first runs. On a busy machine that may be later than this.
    """
    if state.number.last_pid >= 0:
        processes.left_session(state.number.pid, state.store.pids, _SESSION_SECONDS)
    with state.number.next():
        return kept.wake(state.cpu, is_parked=is_parked)


def revive(state: WardenState, kept: SavedState, pid: int) -> None:
    """Makes this process, made from a saved state, the worker."""
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
"""Tries to fork the worker anew for one message. Its state is kept in any case."""


def leave(state: WardenState, asked: int, step: int) -> None:
    """Ends the worker until `call`, if it is at the end of this step and the jail cannot notice."""
    state.suspension.leaving = asked
    if state.alive and state.worker != NOBODY and _may_leave(state.store, state.worker, step):
        os.kill(state.worker, signal.SIGKILL)
    else:
        stay(state)


def _may_leave(store: SnapshotStore, worker: int, step: int) -> bool:
    """Whether an idle worker has reported the end of that step, and that state can be made again at once: no cells
    would have to run for it.

    Also, no other process may run in the jail: the worker's children would go on without it, or end with it.
    """
    base = store.base
    if (
        base is None
        or base.step != step
        or not isinstance(base.copy, InitialState)
        or are_cells(base.bindings)
    ):
        return False
    return store.pids.issuperset(pid for pid in processes.descendants(os.getpid()) if pid != worker)


def left(state: WardenState) -> None:
    """The worker has ended as requested, or before it reported."""
    state.worker, state.alive = NOBODY, True  # nothing is wrong with its state
    stay(state)
    if state.suspension.coming:
        _fetch(state)


def stay(state: WardenState) -> None:
    """Answers the pending message that wants the worker to end, if any: whether it has."""
    if state.suspension.leaving:
        tell_client(
            state, {"op": "parked", "id": state.suspension.leaving, "is_parked": state.worker == NOBODY}
        )
        state.suspension.leaving = 0


def call(state: WardenState, asked: int) -> None:
    """Ensures that there is a worker. If one is just ending, a former client requested that."""
    state.suspension.coming = asked
    if state.worker == NOBODY:
        _fetch(state)
    elif not state.suspension.leaving and state.alive:
        come(state)


def _fetch(state: WardenState) -> None:
    """Forks the worker anew."""
    kept, state.suspension.tries = state.store.base, state.suspension.tries + 1
    may_try = state.suspension.tries <= _MOST_TRIES
    if kept is not None and may_try and (pid := wake(state, kept, is_parked=True)) is not None:
        revive(state, kept, pid)
        state.tries = 0
    else:
        come(state)


def come(state: WardenState) -> None:
    """Answers the pending message that wants a worker, if any: with its pid, or NOBODY if none could be made."""
    if state.suspension.coming:
        tell_client(state, {"op": "unparked", "id": state.suspension.coming, "pid": state.worker})
        state.suspension.coming = state.suspension.tries = 0
