"""What a service says to systemd, where that looks after it: datagrams as sd_notify(3) has them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final, Self

ADDRESS: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """Says nothing where nobody listens, and never waits. address: as in the environment; empty for nobody."""

    def __init__(self, address: str = "") -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._line = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None
        )

    @classmethod
    def of_this_process(cls) -> Self:
        """What it starts is not to find the address: only one process speaks for the service."""
        return cls(os.environ.pop(ADDRESS, ""))

    def ready(self) -> None:
        """The service can be used."""
        self._say(b"READY=1")

    def beat(self) -> None:
        """It still can; for WatchdogSec=."""
        self._say(b"WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line on how it is, for `systemctl status`."""
        self._say(b"STATUS=" + text.replace("\n", " ").encode(errors="replace"))

    def ending(self) -> None:
        """It ends, and gives no sign of life any more."""
        self._say(b"STOPPING=1")

    def _say(self, what: bytes) -> None:
        if self._line is not None:
            with suppress(OSError):  # whoever looks after it is being started again; it hears the next one
                self._line.sendto(what, self._address)
