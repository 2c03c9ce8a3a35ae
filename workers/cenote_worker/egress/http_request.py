"""Reads the head of a request to the proxy. Pure and strict: ambiguous input is refused, not interpreted.

Two forms exist: `CONNECT name:port`, a tunnel, and `GET http://name/...`, which is passed on in plain HTTP. A
connection carries one of the latter, with a body of declared length, so that nothing can be smuggled after it. The
same holds in a tunnel to a host for which the proxy has a credential: it ends at the proxy, which reads the one
request in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cenote_security.network import TLS_PORT, Secret, host_name, plain_path, port_number


class HttpRefusal(Exception):
    """A request is not passed on. status: of the HTTP answer. reason: printable ASCII, for the jail and the log."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason

    def answer(self) -> bytes:
        """The HTTP answer. The reason is in the status line too: of a refused tunnel, clients show nothing else."""
        body = f"{self.reason}\n".encode("ascii", "replace")
        line = f"HTTP/1.1 {self.status} {self.reason}".encode("ascii", "replace")
        headers = b"Content-Type: text/plain\r\nConnection: close\r\nContent-Length: %d" % len(body)
        return b"%b\r\n%b\r\n\r\n%b" % (line, headers, body)


MAX_HEAD: Final = 32 * 2**10
"""Bytes of request line and headers; cookies and tokens included, clients stay below it."""

MAX_BODY: Final = 2**40
"""Bytes of a plain body. The policy's volume limit applies long before; this only catches absurd values."""

END_OF_HEAD: Final = b"\r\n\r\n"
_HTTP_PORT: Final = 80
_MAX_SHOWN: Final = 80

_LINE: Final = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([\t -~\x80-\xff]*)")
_AUTHORITY: Final = re.compile(r"([^:@/?#\[\]]+)(?::([^:@/?#\[\]]*))?")
_URL: Final = re.compile(r"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

# Between a client and its proxy only, RFC 9110 section 7.6.1; not passed on. One that `Connection` names beside these
# is refused: it could name Host.
_HOP_BY_HOP: Final = frozenset({b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
                                b"proxy-connection", b"te", b"trailer", b"upgrade", b"http2-settings"})  # fmt: skip
_CONNECTION_OPTIONS: Final = _HOP_BY_HOP | {b"close"}

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """`CONNECT host:port`."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """An HTTP request. head: as the server gets it, perhaps with a credential. body: number of bytes that follow."""

    host: str
    port: int
    head: bytes = field(repr=False)
    body: int


Request = Tunnel | Plain


def parse(head: bytes) -> Request:
    """A request from its head, the empty line at its end included. Raises HttpRefusal."""
    method, target, headers = _read(head)
    if method == "CONNECT":
        return _tunnel(target, headers)
    return _plain(_passed_on(method), target, headers)


def parse_inside(head: bytes, tunnel: Tunnel, secret: Secret) -> Plain:
    """The request in a tunnel to a host with a credential, with the credential added if its path permits it.

    The answer is then asked for without compression, so that a credential in it can be seen. Raises HttpRefusal.
    """
    method, target, headers = _read(head)
    _passed_on(method)
    if not target.startswith("/") or "#" in target:
        raise HttpRefusal(400, "in a tunnel the target of a request is a path")
    _check_host(headers, tunnel.host, tunnel.port, optional=False, default=TLS_PORT)
    _check_connection(headers)
    if _values(headers, b"upgrade"):
        raise HttpRefusal(501, "a host with a credential is reached by HTTP/1.1 alone, without an upgrade")
    path = target.partition("?")[0]
    if secret.covers(path):
        if "/*" not in secret.paths and not plain_path(path):
            raise HttpRefusal(
                403, "servers can read this path in two ways; the credential is for one of them at most"
            )
        # Some servers take `_` for `-` in the name of a header.
        own = secret.header.lower().replace("_", "-").encode(), b"accept-encoding"
        headers = [(name, value) for name, value in headers if name.lower().replace(b"_", b"-") not in own]
        headers += [(b"Accept-Encoding", b"identity"), (secret.header.encode(), secret.value.encode())]
    return _to_server(method, target, headers, tunnel.host, tunnel.port, TLS_PORT)


def _read(head: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers."""
    if len(head) > MAX_HEAD or not head.endswith(END_OF_HEAD):
        raise HttpRefusal(431, "the head of the request is too long or has no end")
    first, *lines = head[: -len(END_OF_HEAD)].split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise HttpRefusal(400, "not a request line that this proxy reads")
    return match[1].decode(), match[2].decode(), [_header(line) for line in lines]


def _passed_on(method: str) -> str:
    if method not in _METHODS:
        raise HttpRefusal(405, f"method {method} is not passed on")
    return method


def _header(line: bytes) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise HttpRefusal(400, "not a header line that this proxy reads")
    return match[1], match[2].rstrip(b" \t")


def _tunnel(target: str, headers: Headers) -> Tunnel:
    host, port = _authority(target, None)
    if _values(headers, b"content-length") or _values(headers, b"transfer-encoding"):
        raise HttpRefusal(400, "a request for a tunnel has no body")
    _check_host(headers, host, port, optional=True, default=port)
    return Tunnel(host=host, port=port)


def _plain(method: str, target: str, headers: Headers) -> Plain:
    match = _URL.fullmatch(target)
    if match is None:
        raise HttpRefusal(400, "the target must be an absolute http:// URL without a fragment")
    host, port = _authority(match[1], _HTTP_PORT)
    _check_host(headers, host, port, optional=False, default=_HTTP_PORT)
    _check_connection(headers)
    path = match[2] or "/"
    return _to_server(method, path if path.startswith("/") else "/" + path, headers, host, port, _HTTP_PORT)


def _to_server(method: str, target: str, headers: Headers, host: str, port: int, usual_port: int) -> Plain:
    body = _body(headers)
    kept = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP | {b"host"}]
    named = host if port == usual_port else f"{host}:{port}"
    own = [(b"Host", named.encode()), *kept, (b"Connection", b"close")]
    line = f"{method} {target} HTTP/1.1".encode()
    text = b"".join(b"%b: %b\r\n" % header for header in own)
    return Plain(host=host, port=port, head=b"%b\r\n%b\r\n" % (line, text), body=body)


def _authority(text: str, default: int | None) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    host = host_name(match[1]) if match is not None else None
    if match is None or host is None:
        raise HttpRefusal(
            403,
            f"{ascii(text[:_MAX_SHOWN])[1:-1]} is not a name with an optional port; addresses are not reached",
        )
    port = default if match[2] is None else port_number(match[2])
    if port is None:
        raise HttpRefusal(400, "the target needs a port from 1 to 65535")
    return host, port


def _check_host(headers: Headers, host: str, port: int, *, optional: bool, default: int) -> None:
    values = _values(headers, b"host")
    if optional and not values:
        return
    if len(values) != 1:
        raise HttpRefusal(400, "a request has exactly one Host header")
    if _authority(values[0].decode("latin-1"), default) != (host, port):
        raise HttpRefusal(403, "the Host header names another host than the target")


def _check_connection(headers: Headers) -> None:
    for value in _values(headers, b"connection"):
        options = {option.strip(b" \t").lower() for option in value.split(b",")}
        if not options <= _CONNECTION_OPTIONS:
            raise HttpRefusal(400, "the Connection header names a header that must be passed on")


def _body(headers: Headers) -> int:
    if _values(headers, b"transfer-encoding"):
        raise HttpRefusal(411, "send a body with a Content-Length: a chunked one is not passed on")
    lengths = _values(headers, b"content-length")
    if not lengths:
        return 0
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None or int(lengths[0]) > MAX_BODY:
        raise HttpRefusal(400, "not a Content-Length that this proxy reads")
    return int(lengths[0])


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == wanted]
