"""Starts and ends platforms that are processes of their own.

Loads neither gRPC nor a database: commands are to be quick.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Final

from cenote.gateway.announcement import read_announcement
from cenote.gateway.daemon_lock import Running, running_at, runs_already
from cenote.gateway.daemon_unsafe import Daemon, spawn
from cenote.gateway.options import PlatformOptions
from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import UnavailableError

READY_PATIENCE: Final = 60.0
"""Seconds for a platform to be ready; a second or two is usual."""

END_PATIENCE: Final = 30.0
"""Seconds for a platform to end what it has, before it is ended."""


def start_platform(options: PlatformOptions) -> Running:
    """Starts a platform as a process of its own and waits until it is ready.

    Raises UnavailableError when one runs already, or cannot be had; what else stands in its way, as its family.
    """
    if (running := running_at(options.state.lock)) is not None:
        raise runs_already(running)
    options.state.make()
    with spawn(options.to_json(), options.state.log) as daemon:
        message = _first_words(daemon)
        if not message:
            daemon.kill()
            raise UnavailableError(f"the platform ended, or was not ready in time; see {options.state.log}")
    return read_announcement(message)


def stop_platform(state: StateFolder) -> Running | None:
    """Ends the platform of a state folder and waits until it is gone. None when there was none.

    Raises UnavailableError for one that is being started.
    """
    running = running_at(state.lock)
    if running is None:
        return None
    try:
        process = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return running
    try:
        if (
            running_at(state.lock) != running
        ):  # from here on the descriptor is surely the one that holds the lock
            raise runs_already(None)
        _end(process)
    finally:
        os.close(process)
    return running


def _first_words(daemon: Daemon) -> bytes:
    """What the new process says until it closes its end; nothing if it does not in time."""
    said, until = b"", time.monotonic() + READY_PATIENCE
    while select.select([daemon.pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
        if not (more := os.read(daemon.pipe, 65536)):
            return said
        said += more
    return b""


def _end(process: int) -> None:
    signal.pidfd_send_signal(process, signal.SIGTERM)
    if select.select([process], [], [], END_PATIENCE)[0]:
        return
    signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select([process], [], [], END_PATIENCE)
