"""Entering namespaces: once for the zygote, which builds the template in them, and once for each jail.

A jail with a way out has a TCP port on its own loopback that is answered from outside. It is opened inside the
jail's network namespace before there is any hostile code, and the listening socket goes to the client. Connections
are accepted there, so nothing in the jail relays anything, and the socket that a connection came on says which jail
it is from.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from typing import Final

from cenote_security.walls.identity import UserIds, become_jail, become_maker_of_jails, map_into_new_namespace
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import building

JAIL_NAMESPACES: Final = (
    libc.CLONE_NEWUSER
    | libc.CLONE_NEWNS
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWCGROUP
)


def open_host_proc() -> int:
    """A descriptor of the host's `/proc`: the only thing of the host that a zygote keeps; jails close it."""
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def enter_for_zygote(host_proc: int) -> None:
    """A mount namespace in which this process may mount; without root, a user namespace along with it."""
    with building("make the zygote's mount namespace"):
        if os.geteuid() == 0:
            libc.unshare(libc.CLONE_NEWNS)
            return
        uid, gid = os.geteuid(), os.getegid()
        libc.unshare(libc.CLONE_NEWUSER | libc.CLONE_NEWNS)
        map_into_new_namespace(host_proc, uid, gid, inside=uid, inside_gid=gid)


def leave_power_behind(users: UserIds | None) -> None:
    """End of the zygote's privileged part. users: when it was root, and must become an unprivileged user."""
    with building("give up privileges"):
        if users is None:
            libc.set_capabilities()
        else:
            become_maker_of_jails(users.own)


def enter_for_jail(host_proc: int, users: UserIds | None, seat: int) -> None:
    """The jail's user, then all its namespaces. The pid namespace begins with the next fork of this process.

    users, seat: when the zygote was root. The owner of a user namespace is the user that makes it, and is charged for
    what is counted in it: so the jail's user makes it, not the zygote's.
    """
    if users is not None:
        with building("become the jail's own user"):
            become_jail(users.of(seat))
    with building("unshare the jail's namespaces"):
        uid, gid = os.geteuid(), os.getegid()
        # A process that gave up root is not dumpable, and its files in /proc, the maps, are then root's.
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
        libc.unshare(JAIL_NAMESPACES)
    with building("map the jail's user"):
        map_into_new_namespace(host_proc, uid, gid)


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
