"""Which names a jail may reach through its proxy. Values only; nothing here touches the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Self

from cenote_security.errors import UsageError
from cenote_security.options import Options, Size, about, option, parse_size

TLS_PORT: Final = 443
"""The port of a destination that names none: there the name is checked against the handshake, at 80 it cannot be."""

_HTTP_PORT: Final = 80

MAX_CONNECTIONS: Final = 512
"""Each costs the client two descriptors."""

_MAX_NAME: Final = 253
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")
# The C library and URL parsers read a name that ends so as an IPv4 address: 127.1, 0x7f.1, 2130706433.
_NUMERIC_END: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")


MAX_SECRET: Final = 8 * 2**10
"""Characters of a credential: signed tokens have 1 to 4 KiB, and servers take headers of 8."""

_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
# What frames a message, names its host, or is between a client and its proxy: RFC 9110 and 9112.
_NOT_FOR_SECRETS: Final = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "http2-settings", "keep-alive",
    "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_SEGMENT: Final = r"[A-Za-z0-9._~!$&'()+,=:@-]"
_PATTERN: Final = re.compile(rf"/(?:{_SEGMENT}+/)*(?:{_SEGMENT}*\*?)")
# Servers disagree about empty segments, parameters, and escapes of `.`, `/`, `\`, `%`, `;` and control characters.
_ESCAPE: Final = r"%(?!2[EF5]|3B|5C|7F|[01])[0-9A-F]{2}"
_PATH: Final = re.compile(rf"/(?:(?:{_SEGMENT}|\*|{_ESCAPE})+/)*(?:{_SEGMENT}|\*|{_ESCAPE})*", re.IGNORECASE)
_DOTS: Final = frozenset({".", ".."})


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


def plain_path(path: str) -> bool:
    """Whether all servers read the path of a request in one way: no dot segment, for one, nor an empty one."""
    return _PATH.fullmatch(path) is not None and not _DOTS & set(path.split("/"))


@dataclass(frozen=True)
class Secret(Options):
    """A credential that the proxy of a jail adds to requests, outside of the jail. Nothing shows its value."""

    whose = "a secret's"

    value: str = field(
        repr=False,
        metadata=about(
            help='of the header, such as `"Bearer sk-..."`',
            wanted=f"1 to {MAX_SECRET} printable ASCII characters, without a space at either end",
            valid=lambda text: len(text) <= MAX_SECRET and _VALUE.fullmatch(text) is not None,
            is_secret=True,
        ),
    )
    _: KW_ONLY
    header: str = option(
        "Authorization",
        help="name of the header that is added; what the jail sends under this name does not pass",
        wanted='the name of a header such as "X-Api-Key", and none that frames a message or names its host',
        valid=lambda name: _HEADER_NAME.fullmatch(name) is not None and name.lower() not in _NOT_FOR_SECRETS,
        is_later=True,
    )
    paths: Sequence[str] = option(
        ("/*",),
        help="paths of requests that get it: one path as it is written, or with `*` at its end all that begin so. Of "
        "another path than `/*`, a request that servers could read in two ways is refused",
        wanted='a list of paths such as ("/v1/*", "/status"), without query, escapes or dot segments',
        valid=lambda paths: len(paths) > 0 and all(map(_is_pattern, paths)),
        is_later=True,
    )

    def __post_init__(self) -> None:
        self.checked().raise_all()

    def covers(self, path: str) -> bool:
        """Whether requests for this path, without its query, get the credential."""
        return any(
            path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
            for pattern in self.paths
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> str:
        raise UsageError(
            "a Secret is not pickled: pickles are stored and sent where no credential is expected"
        )


def _is_pattern(path: str) -> bool:
    return _PATTERN.fullmatch(path) is not None and not _DOTS & set(path.split("/"))


@dataclass(frozen=True)
class Allow(Options):
    """What a jail may reach, by name, through a proxy outside of it; nothing else can be reached.

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
    credentials: Mapping[str, Secret] = option(
        default_factory=dict,
        is_hashed=False,
        help='by host, such as `{"api.example.com": Secret("Bearer ...")}`: the proxy adds the header to requests '
        "over TLS; no code in the jail sees it",
        wanted="a mapping of destinations, without wildcards, to Secret objects",
        is_secret=True,
    )

    def __post_init__(self) -> None:
        wrong = self.checked()
        if not wrong:
            with wrong.noting():
                object.__setattr__(self, "destinations", tuple(map(_canonical, self.destinations)))
                object.__setattr__(self, "credentials", MappingProxyType(dict(self._named_credentials())))
        wrong.raise_all()

    def _named_credentials(self) -> Iterator[tuple[str, Secret]]:
        """Raises UsageError for a host that they cannot be for."""
        seen = set()
        for given, secret in self.credentials.items():
            destination = _canonical(given)
            host, _, port = destination.rpartition(":")
            if host.startswith("*.") or int(port) == _HTTP_PORT:
                raise UsageError(
                    f"no credential is for {given!r}: name one host, without a wildcard, that speaks TLS"
                )
            if not self.permits(host, int(port)):
                raise UsageError(
                    f"a credential is for {given!r}, which is none of the destinations; list it there"
                )
            if destination in seen:
                raise UsageError(f"two credentials are for {destination!r}; a host has one")
            seen.add(destination)
            yield destination, secret

    def __getstate__(self) -> dict[str, object]:
        """See SandboxPolicy: a read-only view can be neither pickled nor copied."""
        return {**self.__dict__, "credentials": dict(self.credentials)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, credentials=MappingProxyType(state.get("credentials", {})))

    @property
    def volume_bytes(self) -> int:
        return parse_size(self.volume)

    def credential(self, host: str, port: int) -> Secret | None:
        """What the proxy adds to requests to this name, as `host_name` spells it, and port."""
        return self.credentials.get(f"{host}:{port}")

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
