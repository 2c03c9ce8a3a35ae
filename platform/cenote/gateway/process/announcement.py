"""The announcement of a platform's process to its starter, once: that it is ready, or why not.

It is one line. After it, the process sends its watcher empty lines as heartbeats.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

from cenote.gateway.process.daemon_lock import Running
from cenote_security.errors import CenoteError, RejectedError, UnavailableError, UsageError

if TYPE_CHECKING:  # the watcher, and commands, do not load databases
    from cenote.gateway.api.health import Condition

_FAMILIES: Final[dict[str, type[CenoteError]]] = {
    family.__name__: family for family in (UsageError, RejectedError, UnavailableError)
}
"""Error types that an announcement can carry: what the caller can do about an error is what matters."""


def announce(pipe: BinaryIO, said: Running | CenoteError) -> None:
    """Writes the announcement and closes the pipe, which ends all communication."""
    if pipe.closed:
        return
    with pipe:
        pipe.write(_line(said))


class Announcer(Protocol):
    """Reports a platform's condition to its watcher or service manager. No method blocks or fails."""

    def ready(self, running: Running) -> None:
        """Clients can connect. Called once."""

    def beat(self) -> None:
        """The platform serves clients. Called every second, on the loop that serves."""

    def condition(self, condition: Condition) -> None:
        """Called with each new condition: whether the platform can be used, and why not."""

    def ending(self) -> None:
        """The platform was told to end: no more heartbeats need come."""


class PipeAnnouncer:
    """The Announcer of a process with a watcher. pipe: taken over; closing it announces the end."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._lock = threading.Lock()  # else the loop could write to a reused descriptor
        self._pipe: int | None = pipe
        self._said = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ending()

    def ready(self, running: Running) -> None:
        self._say(running)

    def failed(self, error: CenoteError) -> None:
        """Sends why the platform cannot start. Sends nothing if it was ready before."""
        self._say(error)

    def beat(self) -> None:
        self._write(b"\n")

    def condition(self, condition: Condition) -> None:
        """Does nothing: a watcher only ends what hangs, and the platform's log has the rest."""

    def ending(self) -> None:
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe)
            self._pipe = None

    def _say(self, said: Running | CenoteError) -> None:
        if not self._said:
            self._said = True
            self._write(_line(said))

    def _write(self, line: bytes) -> None:
        with self._lock, suppress(OSError):  # the watcher was killed, or is stopped and the pipe is full
            if self._pipe is not None:
                os.write(self._pipe, line)


def refused(error: OSError) -> UnavailableError:
    """The error for a refused system call, such as on a full disk: announced, since the log may be empty then."""
    return UnavailableError(f"the platform cannot be started here: {error}")


def read_announcement(text: bytes) -> Running:
    """Parses an announcement. Raises the error if it carries one."""
    said = json.loads(text)
    if "error" in said:
        raise _FAMILIES.get(said["family"], CenoteError)(said["error"])
    return Running(**said)


def _line(said: Running | CenoteError) -> bytes:
    return json.dumps(_message(said)).encode() + b"\n"


def _message(said: Running | CenoteError) -> dict[str, object]:
    if isinstance(said, Running):
        return asdict(said)
    family = next((name for name, family in _FAMILIES.items() if isinstance(said, family)), "")
    return {"error": str(said), "family": family}
