"""The process's service manager: the signals SIGTERM and SIGINT from it, and notifications to systemd.

The latter are datagrams as in sd_notify(3).
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress
from typing import Final, Self

ADDRESS: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """Sends nothing if there is no listener, and never blocks. address: as in the environment; empty for none."""

    def __init__(self, address: str = "") -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._line = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None
        )

    @classmethod
    def of_this_process(cls) -> Self:
        """Removes the address from the environment: child processes must not speak for the service."""
        return cls(os.environ.pop(ADDRESS, ""))

    def ready(self) -> None:
        """The service can be used."""
        self._say(b"READY=1")

    def beat(self) -> None:
        """It still can; for WatchdogSec=."""
        self._say(b"WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line about its condition, for `systemctl status`."""
        self._say(b"STATUS=" + text.replace("\n", " ").encode(errors="replace"))

    def ending(self) -> None:
        """It ends, and sends no more heartbeats."""
        self._say(b"STOPPING=1")

    def _say(self, what: bytes) -> None:
        if self._line is not None:
            with suppress(OSError):  # the service manager is restarting; it gets the next one
                self._line.sendto(what, self._address)


class EndSignal:
    """Readable once either signal has come. Made on the main thread, and only once.

    A `threading.Event` that a handler sets can hang: the handler runs on the waiting thread, perhaps while that holds
    the event's lock.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._came)

    def fileno(self) -> int:
        return self._reading

    def wait(self, patience: float | None = None) -> bool:
        """Returns whether it has come, after at most `patience` seconds."""
        return bool(select.select([self], [], [], patience)[0])

    def _came(self, *_: object) -> None:
        with suppress(BlockingIOError):  # many have come, and the pipe is full
            os.write(self._writing, b"\0")
