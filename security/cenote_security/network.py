"""Which names a jail may reach through its proxy. Values only; nothing here touches the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from cenote_security.errors import UsageError
from cenote_security.options import Options, about, option
from cenote_security.size import Size, parse_size

TLS_PORT: Final = 443
"""The port of a destination that names none: there the name is checked against the handshake, at 80 it cannot be."""

MAX_CONNECTIONS: Final = 512
"""Each costs the client two descriptors."""

_MAX_NAME: Final = 253
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")
# The C library and URL parsers read a name that ends so as an IPv4 address: 127.1, 0x7f.1, 2130706433.
_NUMERIC_END: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")


def host_name(text: str) -> str | None:
    """The one spelling of a DNS name of at least two labels, in lower case; None for anything else.

    Addresses in every notation, trailing dots, underscores, empty labels and letters beyond ASCII are no names here:
    an internationalised name is written in its `xn--` form.
    """
    if not text.isascii() or len(text) > _MAX_NAME:
        return None
    name = text.lower()
    if _NAME.fullmatch(name) is None or _NUMERIC_END.fullmatch(name) is not None:
        return None
    return name


def port_number(text: str) -> int | None:
    """A port from 1 to 65535, written without sign, space or leading zero; None for anything else."""
    if not text.isascii() or _PORT.fullmatch(text) is None or int(text) > 65535:
        return None
    return int(text)


@dataclass(frozen=True)
class Allow(Options):
    """What a jail may reach, by name, through a proxy outside of it; everything else stays out of reach.

    A name that resolves to a private, loopback, link-local or otherwise special address is refused nevertheless.
    """

    destinations: Sequence[str] = field(
        metadata=about(
            help='`"pypi.org"` (port 443), `"example.com:8443"`, `"*.example.com"` (all names below example.com, not '
            "itself). At any port a tunnel must carry TLS whose server name is the name that was asked for; plain "
            'HTTP is for destinations that are listed with their port, such as `"example.com:80"`',
            wanted='a list of names, such as Allow(["pypi.org", "*.example.com:443"])',
            valid=bool,
        )
    )
    _: KW_ONLY
    connections: int = option(32, help="connections at once", at_least=1, at_most=MAX_CONNECTIONS)
    rate: float = option(
        20.0,
        help="new connections per second, after a burst of 4 seconds' worth",
        above=0,
        at_most=1000,
    )
    volume: Size = option("4GiB", help="both directions together over the life of the runtime", unit="bytes")

    def __post_init__(self) -> None:
        wrong = self.checked()
        if not wrong:
            with wrong.noting():
                object.__setattr__(self, "destinations", tuple(map(_canonical, self.destinations)))
        wrong.raise_all()

    @property
    def volume_bytes(self) -> int:
        return parse_size(self.volume)

    def permits(self, host: str, port: int) -> bool:
        """Whether a name, as `host_name` spells it, may be reached at a port."""
        return any(_matches(destination, host, port) for destination in self.destinations)


def _canonical(destination: str) -> str:
    if not isinstance(destination, str):
        raise UsageError(f"a destination is a string such as 'pypi.org', not {destination!r}")
    pattern, colon, port_text = destination.partition(":")
    wildcard = "*." if pattern.startswith("*.") else ""
    name = host_name(pattern.removeprefix("*."))
    port = port_number(port_text) if colon else TLS_PORT
    if name is None or port is None:
        raise UsageError(
            f"{destination!r} is not a destination: write a full name such as 'pypi.org', '*.example.com' or "
            f"'example.com:80'; addresses and bare host names cannot be listed, other alphabets go as xn--"
        )
    return f"{wildcard}{name}:{port}"


def _matches(destination: str, host: str, port: int) -> bool:
    pattern, _, listed_port = destination.partition(":")
    if int(listed_port) != port:
        return False
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
