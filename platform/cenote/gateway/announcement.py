"""What the process of a platform says to whoever started it, once: that it is ready, or why not.

It is a line. To its watcher the process goes on with empty ones, its signs of life.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import BinaryIO, Final, Self

from cenote.gateway.daemon_lock import Running
from cenote_security.errors import CenoteError, RejectedError, UnavailableError, UsageError

_FAMILIES: Final[dict[str, type[CenoteError]]] = {
    family.__name__: family for family in (UsageError, RejectedError, UnavailableError)
}
"""What an error can be told as: what the caller may do about it is what matters."""


def announce(pipe: BinaryIO, said: Running | CenoteError) -> None:
    """Says it, and closes the pipe. What comes after that is not said."""
    if pipe.closed:
        return
    with pipe:
        pipe.write(json.dumps(_message(said)).encode() + b"\n")


class Beats:
    """The signs of life. pipe: duplicated, so that these go on when what is announced is said."""

    def __init__(self, pipe: int) -> None:
        self._pipe = os.dup(pipe)
        os.set_blocking(self._pipe, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)

    def beat(self) -> None:
        with suppress(OSError):  # the watcher was killed, or stands still with a full pipe
            os.write(self._pipe, b"\n")


def refused(error: OSError) -> UnavailableError:
    """For what the system said no to, such as for a disk that is full: said here, since a log there may be empty."""
    return UnavailableError(f"the platform cannot be started here: {error}")


def read_announcement(text: bytes) -> Running:
    """Raises the error that was said instead."""
    said = json.loads(text)
    if "error" in said:
        raise _FAMILIES.get(said["family"], CenoteError)(said["error"])
    return Running(**said)


def _message(said: Running | CenoteError) -> dict[str, object]:
    if isinstance(said, Running):
        return asdict(said)
    family = next((name for name, family in _FAMILIES.items() if isinstance(said, family)), "")
    return {"error": str(said), "family": family}
