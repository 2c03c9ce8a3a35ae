"""Resolves names and decides which of the addresses may be dialled: the public internet, and nothing of this machine
or its network.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from cenote_security.errors import UnavailableError
from cenote_security.extras import importing
from cenote_worker.process.threads import begin_thread

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, text.split()))


# IANA's special-purpose registries, written out: what `ipaddress` calls global differs between Python's releases.
# 168.63.129.16 is a public address that answers a cloud's own machines only, with their secrets.
_SPECIAL_V4: Final = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
    "192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 "
    "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
# Only unicast space is public at all; so mapped, NAT64, unique local, link-local and multicast addresses are not.
_UNICAST_V6: Final = ipaddress.IPv6Network("2000::/3")
# Protocol assignments (Teredo, benchmarks, ORCHID), documentation, 6to4, which wraps any IPv4 address, and AS112.
_SPECIAL_V6: Final = _networks("2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20")


def is_public(address: str) -> bool:
    """Whether an address, in the notation of the resolver, is one of the public internet. Pure."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _SPECIAL_V4)
    if parsed.scope_id is not None or parsed not in _UNICAST_V6:
        return False
    return not any(parsed in network for network in _SPECIAL_V6)


LOOKUPS_AT_ONCE: Final = 4
"""Per jail. A lookup cannot be cancelled, so this is also how many threads a jail can keep waiting."""

CREDENTIALS: Final = ("a credential at the proxy", "credentials")
"""The feature that needs further libraries, and the extra that installs them."""

PROTOCOLS: Final = ["http/1.1"]
"""The protocol that the proxy itself speaks, to both sides: it reads a request before it adds a credential."""


@lru_cache(maxsize=1)
def trusted_here() -> str:
    """PEM of the authorities that programs of this machine trust."""
    with importing(*CREDENTIALS):
        import certifi

    return Path(ssl.get_default_verify_paths().cafile or certifi.where()).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _checking() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted_here())
    context.set_alpn_protocols(PROTOCOLS)
    return context


class Reach(Protocol):
    """The port to the network for one jail's proxy."""

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses of a name, each once. Raises OSError."""
        ...

    def permits(self, address: str) -> bool:
        """Whether an address that a name stands for may be dialled."""
        ...

    def context(self) -> ssl.SSLContext:
        """How the proxy itself checks a server, before it sends a credential there."""
        ...


class PublicReach:
    """The public internet, by the client's own resolver."""

    def __init__(self) -> None:
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def resolve(self, host: str) -> Sequence[str]:
        await self._lookups.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def look_up() -> None:
            outcome = _look_up(host)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, outcome)

        def settle(outcome: list[str] | OSError) -> None:
            self._lookups.release()
            if found.done():
                return
            if isinstance(outcome, OSError):
                found.set_exception(outcome)
            else:
                found.set_result(outcome)

        # Not an executor: the interpreter waits for its threads at exit, and a resolver can take half a minute.
        try:
            begin_thread("cenote-resolver", look_up)
        except UnavailableError as error:
            self._lookups.release()
            raise OSError(errno.EAGAIN, str(error)) from error
        return await found

    def permits(self, address: str) -> bool:
        return is_public(address) and not is_own(address)

    def context(self) -> ssl.SSLContext:
        return _checking()


def _look_up(host: str) -> list[str] | OSError:
    try:
        # The dot at the end keeps the resolver from trying the name below the client's own domains.
        found = socket.getaddrinfo(f"{host}.", None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(f"{host} cannot be looked up")
    return list(dict.fromkeys(str(answer[4][0]) for answer in found))


def is_own(address: str) -> bool:
    """Whether an address is this machine's: the route to it begins where it ends. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False
