"""Starts and ends platforms that run as processes of their own.

Loads neither gRPC nor a database, so that commands are quick.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.gateway.machines.joined_cluster import clean_up
from cenote.gateway.process.announcement import read_announcement
from cenote.gateway.process.daemon_lock import DaemonLock, Running, running_at, runs_already
from cenote.gateway.process.daemon_unsafe import Daemon, spawn
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.errors import UnavailableError

READY_PATIENCE: Final = 180.0
"""Seconds for a platform to become ready. It takes two without Ray and ten with it, and many times that on a machine
that is busy. One that fails ends, which is noticed at once."""

END_PATIENCE: Final = 50.0
"""Seconds for a platform to end its agents and then its cluster, before it is killed."""

KILL_PATIENCE: Final = 10.0
"""Seconds for a killed process to be gone."""

_MODULE: Final = "cenote.gateway.process.watcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownReport:
    """How a platform ended. platform: None when none ran.

    forced: it did not end by itself in time, or had been killed; what it left was ended here.
    """

    platform: Running | None
    forced: bool


def start_platform(options: PlatformOptions, giving_up: Callable[[], None] = lambda: None) -> Running:
    """Starts a platform as a process of its own and waits until it is ready.

    If interrupted, it ends what it has started, which may take some seconds for a cluster; `giving_up` is called
    before. Raises UnavailableError when a platform already runs or cannot start, and other errors by their family.
    """
    for lock in (options.state.lock, options.state.watch):
        if (running := running_at(lock)) is not None:
            raise runs_already(running)
    options.state.make()
    # The cluster of a former platform may be in use: the next start finds it, and `cenote down` ends it.
    former = options.state.cluster.exists() or options.state.joined.exists()
    with spawn(_MODULE, options.to_json(), options.state.log) as daemon:
        try:
            message = _first_words(daemon)
        except KeyboardInterrupt:
            giving_up()
            _end_child(daemon)
            _end_started(options.state, former=former)
            raise
        if message is None:
            _end_child(daemon)
        if not message:
            _end_started(options.state, former=former)
            late = f"was not ready in {READY_PATIENCE:.0f} s, and was ended; try again when less runs here"
            what = late if message is None else "ended before it was ready"
            raise UnavailableError(f"the platform {what}; see {options.state.log}")
    return read_announcement(message)


def stop_platform(state: StateFolder) -> ShutdownReport:
    """Ends the platform of a state folder and all that it has, in bounded time, even if a part of it hangs.

    Raises UnavailableError while a platform is starting.
    """
    running = running_at(state.lock)
    orderly = _end_processes(state)
    return ShutdownReport(platform=running, forced=_end_remains(state) or not orderly)


def _end_remains(state: StateFolder) -> bool:
    if not state.path.is_dir():
        return False
    lock = DaemonLock(state.lock)  # no other platform starts meanwhile
    try:
        return clean_up(state)
    finally:
        lock.release()


def _end_started(state: StateFolder, *, former: bool) -> None:
    _end_processes(state)
    if not former:
        _end_remains(state)


def _end_child(daemon: Daemon) -> None:
    """By its own process id, since it may not hold its lock yet."""
    process = os.pidfd_open(daemon.process.pid)
    try:
        _end(process, END_PATIENCE)
    finally:
        os.close(process)
    daemon.process.wait()


def _first_words(daemon: Daemon) -> bytes | None:
    """What the new process writes until it closes the pipe; None on timeout."""
    said, until = b"", time.monotonic() + READY_PATIENCE
    while select.select([daemon.pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
        if not (more := os.read(daemon.pipe, 65536)):
            return said
        said += more
    return None


def _end_processes(state: StateFolder) -> bool:
    """Returns whether they ended by themselves. The watcher goes first: it restarts the other, and ends it."""
    orderly = _end_holder(state.watch, END_PATIENCE)
    return _end_holder(state.lock, END_PATIENCE if orderly else 0.0) and orderly


def _end_holder(lock: Path, patience: float) -> bool:
    """Ends the holder of a lock. Returns whether it ended by itself within `patience` seconds, or there was none."""
    holder = running_at(lock)
    if holder is None:
        return True
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return True
    try:
        # From here on the descriptor is certainly that of the lock's holder.
        again = running_at(lock)
        if again is None:  # it has ended just now
            return True
        if again.pid != holder.pid:
            raise runs_already(None)
        return _end(process, patience)
    finally:
        os.close(process)


def _end(process: int, patience: float) -> bool:
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:  # it has ended just now, and its parent has reaped it
        return True
    if select.select([process], [], [], patience)[0]:
        return True
    with suppress(ProcessLookupError):  # as above
        signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select([process], [], [], KILL_PATIENCE)
    return False
