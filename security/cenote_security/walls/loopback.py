"""The way out of a jail that has one: a TCP port on its own loopback that is answered from outside.

The port is opened inside the jail's network namespace before there is any hostile code, and the listening socket goes
to the client. Whoever connects is accepted there, so nothing in the jail relays anything, and the socket that a
connection came on says which jail it is from.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import Final

from cenote_security.walls.wall import building

EGRESS_PORT: Final = 3128
"""Every jail has a loopback of its own, so all of them can have the same port."""

PROXY_VARIABLES: Final[Mapping[str, str]] = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{EGRESS_PORT}"
)
"""Programs disagree about the case of these names."""

_BACKLOG: Final = 64
"""Connections that wait for the proxy; further ones wait in their own process."""

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_INTERFACE_FLAGS: Final = struct.Struct("16sH14x")


def listen() -> socket.socket:
    """Open the port. In the jail's network namespace, with power over it. Raises WallError."""
    with building("open the jail's way to its proxy"):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _bring_up(listener)
            listener.bind(("127.0.0.1", EGRESS_PORT))
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener


def _bring_up(of_namespace: socket.socket) -> None:
    request = _INTERFACE_FLAGS.pack(b"lo", 0)
    name, flags = _INTERFACE_FLAGS.unpack(fcntl.ioctl(of_namespace, _SIOCGIFFLAGS, request))
    fcntl.ioctl(of_namespace, _SIOCSIFFLAGS, _INTERFACE_FLAGS.pack(name, flags | _IFF_UP))
