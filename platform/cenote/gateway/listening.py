"""Whether a platform can listen where it is to, said before anything is started for it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

from cenote_security.errors import UnavailableError


def check_listening(host: str, port: int) -> None:
    """Raises UnavailableError for a name that leads nowhere, for addresses of other machines, and for a port that
    is taken, or not for this user.
    """
    problem = ""
    for family, address in _addresses(host, port):
        try:
            with socket.socket(family) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # in spite of ended connections
                sock.bind(address)
                return
        except OSError as error:
            problem = _problem(host, port, error)
    raise UnavailableError(problem)


def _problem(host: str, port: int, error: OSError) -> str:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        why = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror
        return f"nothing can listen at {host}:{port}: {why}; choose another one with --port"
    return (
        f"{host} is no address of this machine ({error.strerror or error}); name one with --host, "
        f"or 0.0.0.0 for all that it has"
    )


def _addresses(host: str, port: int) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Nobody is asked for what is an address itself."""
    plain = host.strip("[]")
    with suppress(ValueError):
        family = socket.AF_INET6 if ip_address(plain).version == 6 else socket.AF_INET
        yield family, (plain, port)
        return
    try:
        found = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"no machine is known as {host!r} ({error}); name an address of this machine with --host"
        ) from None
    for kind, _, _, _, address in found:
        yield kind, address
