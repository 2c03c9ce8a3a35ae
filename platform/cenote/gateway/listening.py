"""Whether a platform can listen where it is to, said before anything is started for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

from cenote_security.errors import UnavailableError


def check_host(host: str) -> None:
    """Raises UnavailableError for a name that leads nowhere, and for addresses of other machines."""
    problem = ""
    for family, address in _addresses(host):
        try:
            with socket.socket(family) as sock:
                sock.bind(address)
                return
        except OSError as error:
            problem = error.strerror or str(error)
    raise UnavailableError(
        f"{host} is no address of this machine ({problem}); name one with --host, or 0.0.0.0 for all that it has"
    )


def _addresses(host: str) -> Iterator[tuple[int, tuple[object, ...]]]:
    """With a port that is free. Nobody is asked for what is an address itself."""
    plain = host.strip("[]")
    with suppress(ValueError):
        family = socket.AF_INET6 if ip_address(plain).version == 6 else socket.AF_INET
        yield family, (plain, 0)
        return
    try:
        found = socket.getaddrinfo(plain, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"no machine is known as {host!r} ({error}); name an address of this machine with --host"
        ) from None
    for kind, _, _, _, address in found:
        yield kind, address
