"""The end of a jail's tunnel to a host with a credential: the proxy acts as that host.

TLS runs over memory buffers, since a client may send its first bytes together with its request for the tunnel.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from cenote_security.auth.certificates import Certificate
from cenote_security.extras import importing, require
from cenote_worker.egress.addresses import CREDENTIALS, PROTOCOLS, trusted_here
from cenote_worker.egress.http_request import END_OF_HEAD, MAX_HEAD, HttpRefusal
from cenote_worker.egress.relay import CHUNK, Stream

T = TypeVar("T")


def make_authority_of_proxy() -> Certificate:
    """An authority that programs in jails trust, and whose key stays outside of them. Raises MissingExtraError."""
    require(*CREDENTIALS, "cryptography")
    from cenote_security.auth.certificate_authority import make_authority

    return make_authority("Cenote proxy", datetime.now(UTC))


def trusted_by_jail(authority: Certificate) -> str:
    """PEM of all authorities for programs in the jail: those that this machine trusts, and the proxy's."""
    return f"{trusted_here()}\n{authority.certificate.decode()}"


class HostContexts:
    """TLS contexts for acting as hosts, for the connections of one jail."""

    def __init__(self, authority: Certificate) -> None:
        self._authority = authority
        self._made: dict[str, ssl.SSLContext] = {}

    def of(self, host: str) -> ssl.SSLContext:
        """Raises MissingExtraError."""
        if host not in self._made:
            self._made[host] = _server_context(self._authority, host)
        return self._made[host]


def _server_context(authority: Certificate, host: str) -> ssl.SSLContext:
    with importing(*CREDENTIALS):
        from cenote_security.auth.certificate_authority import issue

    own = issue(authority, [host], ["server"], datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(PROTOCOLS)
    with open(os.memfd_create("cenote-certificate"), "wb") as file:  # the API only takes files
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


class TlsEnd:
    """The server's side of TLS towards a jail; see `relay.Side`. Raises ssl.SSLError for anything but TLS."""

    def __init__(self, stream: Stream, context: ssl.SSLContext) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read_ahead = b""

    async def open(self) -> None:
        """The handshake."""
        await self._done(self._tls.do_handshake)

    async def head(self) -> bytes:
        """The head of a request, with the empty line at its end; empty if the jail hangs up. Raises HttpRefusal."""
        seen = b""
        while (end := seen.find(END_OF_HEAD)) < 0:
            if len(seen) > MAX_HEAD:
                raise HttpRefusal(431, f"the head of the request is longer than {MAX_HEAD} bytes")
            chunk = await self.read(CHUNK)
            if not chunk and seen:
                raise HttpRefusal(400, "the head of the request has no end")
            if not chunk:
                return b""
            seen += chunk
        end += len(END_OF_HEAD)
        self._read_ahead = seen[end:]
        return seen[:end]

    async def read(self, most: int) -> bytes:
        if self._read_ahead:
            taken, self._read_ahead = self._read_ahead[:most], self._read_ahead[most:]
            return taken
        try:
            return await self._done(lambda: self._tls.read(most))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def send(self, chunk: bytes) -> None:
        self._tls.write(chunk)
        await self._stream.send(self._outgoing.read())

    def end(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # it also waits for the jail's close message
            self._tls.unwrap()
        self._stream.writer.write(self._outgoing.read())
        self._stream.end()

    async def _done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                if self._outgoing.pending:
                    await self._stream.send(self._outgoing.read())
            if chunk := await self._stream.read(CHUNK):
                self._incoming.write(chunk)
            else:
                self._incoming.write_eof()
