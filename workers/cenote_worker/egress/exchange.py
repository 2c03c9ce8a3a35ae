"""One connection from a jail: its request, the decision, and what passes after it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from cenote_security.network import Secret
from cenote_worker.egress.addresses import Reach
from cenote_worker.egress.http_request import (
    END_OF_HEAD,
    MAX_HEAD,
    HttpRefusal,
    Plain,
    Request,
    Tunnel,
    parse,
    parse_inside,
)
from cenote_worker.egress.ledger import Decision, EgressLedger
from cenote_worker.egress.relay import (
    CHUNK,
    KERNEL_BUFFER,
    Mask,
    ProxyTimeouts,
    Relay,
    RelayEnded,
    Side,
    Stream,
)
from cenote_worker.egress.tls_hello import (
    MAX_BYTES,
    ClientHello,
    UnreadableHello,
    first_hello,
    second_hello,
)
from cenote_worker.egress.tls_termination import HostContexts, TlsEnd

MAX_ADDRESSES: Final = 4
"""Addresses tried per name, in the resolver's order."""

_LINGER_SECONDS: Final = 1.0
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_UNRECOGNIZED_NAME: Final = b"\x15\x03\x03\x00\x02\x02\x70"
"""A fatal TLS alert, RFC 6066: the error in the jail says that it was the name."""


class ProxyExchange:
    """Serves one connection. The order ensures safety: list, addresses, dial, name in the handshake, bytes."""

    def __init__(
        self,
        near: Stream,
        ledger: EgressLedger,
        reach: Reach,
        patience: ProxyTimeouts,
        contexts: HostContexts | None,
    ) -> None:
        """contexts: of a jail whose policy has credentials."""
        self._near = near
        self._ledger = ledger
        self._reach = reach
        self._patience = patience
        self._contexts = contexts
        self._request: Request | None = None
        self._address = ""

    async def serve(self) -> None:
        """Runs until the connection ends. Raises OSError when one of the two sides breaks off."""
        try:
            await self._serve()
        except HttpRefusal as refused:
            self._note(refused.reason)
            await self._answer(refused.answer())
        except UnreadableHello as unreadable:
            self._note(f"the handshake does not show this name: {unreadable}")
            await self._answer(_UNRECOGNIZED_NAME)
        except RelayEnded as ended:
            self._note(str(ended))

    async def _serve(self) -> None:
        head = await self._head()
        if not head:
            return
        self._request = request = parse(head)
        secret = self._ledger.allow.credential(request.host, request.port)
        if secret is not None and isinstance(request, Plain):
            raise HttpRefusal(
                403, f"{request.host} has a credential, which goes over TLS alone: write https://"
            )
        sock = await self._dial(request)
        far = await (Stream.over(sock) if secret is None else self._verified(request.host, sock))
        try:
            match request:
                case Plain():
                    await self._pass_on(request, far)
                case Tunnel() if secret is not None:
                    await self._tunnel_end(request, far, secret)
                case Tunnel():
                    await self._tunnel(request, far)
        finally:
            far.abort()

    async def _head(self) -> bytes:
        """The head of the request; empty when the jail hangs up without sending anything."""
        try:
            async with asyncio.timeout(self._patience.head):
                return await self._near.reader.readuntil(END_OF_HEAD)
        except TimeoutError:
            raise HttpRefusal(408, "the head of the request took too long") from None
        except asyncio.LimitOverrunError:
            raise HttpRefusal(431, f"the head of the request is longer than {MAX_HEAD} bytes") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise HttpRefusal(400, "the head of the request has no end") from None
            return b""

    # -- the way to the server --

    async def _dial(self, request: Request) -> socket.socket:
        name = f"{request.host}:{request.port}"
        if not self._ledger.allow.permits(request.host, request.port):
            raise HttpRefusal(403, f"{name} is not on the allow-list of this runtime")
        if self._ledger.spent:
            raise HttpRefusal(403, "the volume of the network policy is used up")
        try:
            async with asyncio.timeout(self._patience.dial):
                return await self._connect(await self._addresses(request.host), request.port)
        except OSError as error:
            raise HttpRefusal(502, f"{name} cannot be reached: {type(error).__name__}") from None

    async def _addresses(self, host: str) -> Sequence[str]:
        """The addresses that may be dialled. Exactly these are then dialled: the name is not looked up again."""
        found = await self._reach.resolve(host)
        permitted = [address for address in found if self._reach.permits(address)]
        if not permitted:
            raise HttpRefusal(403, f"{host} stands for no public address")
        return permitted[:MAX_ADDRESSES]

    async def _connect(self, addresses: Sequence[str], port: int) -> socket.socket:
        failure: OSError = OSError()
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
            try:
                async with asyncio.timeout(self._patience.dial / len(addresses)):
                    await asyncio.get_running_loop().sock_connect(sock, (address, port))
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                self._address = address
                return sock
        raise failure

    async def _verified(self, host: str, sock: socket.socket) -> Stream:
        """TLS with the server itself."""
        try:
            async with asyncio.timeout(self._patience.hello):
                return await Stream.over(sock, self._reach.context(), host)
        except OSError as error:
            sock.close()
            why = getattr(error, "verify_message", "") or type(error).__name__
            raise HttpRefusal(502, f"{host} does not show that it is this host: {why}") from None

    # -- what passes --

    async def _tunnel(self, request: Tunnel, far: Stream) -> None:
        self._near.writer.write(_ESTABLISHED)
        hello, behind = await self._hello(request.host, b"", first_hello)
        with self._relayed(far) as relay:
            await relay.tunnel(hello, behind, lambda seen: self._hello(request.host, seen, second_hello))

    async def _tunnel_end(self, request: Tunnel, far: Stream, secret: Secret) -> None:
        """One request, which is read here, and its answer. A second one on its connection would not be checked."""
        assert self._contexts is not None, "a jail whose policy has credentials has an authority"
        near = TlsEnd(self._near, self._contexts.of(request.host))
        self._near.writer.write(_ESTABLISHED)
        try:
            async with asyncio.timeout(self._patience.hello):
                await near.open()
        except (ssl.SSLError, TimeoutError) as error:
            why = getattr(error, "reason", None) or type(error).__name__
            raise RelayEnded(
                f"no TLS with the proxy, which is {request.host} to the jail, for its credential: {why}"
            ) from None
        try:
            async with asyncio.timeout(self._patience.head):
                head = await near.head()
            if not head:
                return
            inside = parse_inside(head, request, secret)
        except (HttpRefusal, TimeoutError) as error:
            refused = (
                error
                if isinstance(error, HttpRefusal)
                else HttpRefusal(408, "the head of the request took too long")
            )
            self._note(refused.reason)
            await self._answer(refused.answer(), near)
            return
        with self._relayed(far, near) as relay:
            await relay.request(inside.head, inside.body, Mask(secret.value))

    async def _hello(
        self, host: str, seen: bytes, read: Callable[[bytes], ClientHello | None]
    ) -> tuple[bytes, bytes]:
        """A hello that names the server that the jail requested, and the bytes after it.

        seen: the bytes received so far.
        """
        try:
            async with asyncio.timeout(self._patience.hello):
                while (hello := read(seen)) is None:
                    chunk = await self._near.reader.read(MAX_BYTES)
                    if not chunk:
                        raise UnreadableHello("it has no end")
                    seen += chunk
        except TimeoutError:
            raise UnreadableHello("it took too long") from None
        if hello.server_name != host:
            raise UnreadableHello(f"it names {hello.server_name}")
        return seen[: hello.size], seen[hello.size :]

    async def _pass_on(self, request: Plain, far: Stream) -> None:
        with self._relayed(far) as relay:
            await relay.request(request.head, request.body)

    @contextmanager
    def _relayed(self, far: Stream, near: Side | None = None) -> Iterator[Relay]:
        """A context for an allowed connection: records the decision now, and its end afterwards."""
        decision = self._note()
        relay = Relay(near or self._near, far, self._ledger, self._patience.idle)
        try:
            yield relay
        finally:
            self._ledger.ended(decision, relay.passed)

    # -- the answer --

    def _note(self, reason: str = "") -> Decision:
        match self._request:
            case None:
                return self._ledger.note("unread", "", 0, reason=reason)
            case Tunnel(host=host, port=port):
                return self._ledger.note("tunnel", host, port, address=self._address, reason=reason)
            case Plain(host=host, port=port):
                return self._ledger.note("http", host, port, address=self._address, reason=reason)

    async def _answer(self, message: bytes, near: Side | None = None) -> None:
        """Sends the reason, and reads a moment longer: closing with unread bytes would discard the answer."""
        near = near or self._near
        with suppress(OSError):
            await near.send(message)
            near.end()
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._near.read(CHUNK):
                    pass
