"""What the process of a platform says to whoever started it, once: that it is ready, or why not.

It is a line. To its watcher the process goes on with empty ones, its signs of life.
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

if TYPE_CHECKING:  # the watcher, and commands, have nothing to do with databases
    from cenote.gateway.api.health import Condition

_FAMILIES: Final[dict[str, type[CenoteError]]] = {
    family.__name__: family for family in (UsageError, RejectedError, UnavailableError)
}
"""What an error can be told as: what the caller may do about it is what matters."""


def announce(pipe: BinaryIO, said: Running | CenoteError) -> None:
    """Says it, and closes the pipe. What comes after that is not said."""
    if pipe.closed:
        return
    with pipe:
        pipe.write(_line(said))


class Announcer(Protocol):
    """Tells whoever looks after a platform how it is. None of it waits, or fails."""

    def ready(self, running: Running) -> None:
        """Clients can connect. Once."""

    def beat(self) -> None:
        """It serves them. Every second, on the loop that does."""

    def condition(self, condition: Condition) -> None:
        """Whether it can be used now, and why not; each time that is another one."""

    def ending(self) -> None:
        """It was told to end: no beat need come any more."""


class PipeAnnouncer:
    """The Announcer of a process with a watcher. pipe: taken over; closed is the word that it is ending."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._lock = threading.Lock()  # else the loop could beat into what has this number next
        self._pipe: int | None = pipe
        self._said = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ending()

    def ready(self, running: Running) -> None:
        self._say(running)

    def failed(self, error: CenoteError) -> None:
        """Why it cannot be had. Nothing for one that was ready before."""
        self._say(error)

    def beat(self) -> None:
        self._write(b"\n")

    def condition(self, condition: Condition) -> None:
        """A watcher only ends what hangs. What else is the matter, the platform's log says."""

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
        with self._lock, suppress(OSError):  # the watcher was killed, or stands still with a full pipe
            if self._pipe is not None:
                os.write(self._pipe, line)


def refused(error: OSError) -> UnavailableError:
    """For what the system said no to, such as for a disk that is full: said here, since a log there may be empty."""
    return UnavailableError(f"the platform cannot be started here: {error}")


def read_announcement(text: bytes) -> Running:
    """Raises the error that was said instead."""
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
