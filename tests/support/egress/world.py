"""A small internet on loopback: names that resolve to 127.0.0.1, and servers that record what they receive."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.waiting import PATIENCE

from cenote_security.network import Allow
from cenote_worker.egress.addresses import PROTOCOLS
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.egress.proxy import EgressService
from cenote_worker.egress.relay import ProxyTimeouts
from cenote_worker.egress.tls_termination import make_authority_of_proxy

CERTIFICATES = Path(__file__).parent / "certificates"
AUTHORITY = CERTIFICATES / "authority.pem"
LONG = ProxyTimeouts(head=PATIENCE, hello=PATIENCE, dial=PATIENCE, idle=PATIENCE)
"""For clients that a busy machine may delay. Cases that end only by a limit use another one with that limit short."""


@dataclass
class World:
    """A Reach. names: answers per name, one for each look-up, the last one repeated. asked: look-ups."""

    names: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    permitted: tuple[str, ...] = ("127.0.0.1",)
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            if not host.endswith(".test"):
                raise OSError(f"no such name: {host}")
            return ["127.0.0.1"]
        answers = self.names[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def permits(self, address: str) -> bool:
        return address in self.permitted

    def context(self) -> ssl.SSLContext:
        """Checks servers as the proxy does, with the authority of these tests."""
        context = ssl.create_default_context(cafile=str(AUTHORITY))
        context.set_alpn_protocols(PROTOCOLS)
        return context


class _Site(BaseHTTPRequestHandler):
    """Answers every request with its content; `/to/x` redirects to x."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        site.requests.append(f"{self.command} {self.path} {self.headers['Host']}")
        site.heads.append(str(self.headers))
        echo = self.path.startswith("/echo")
        reply = str(self.headers).encode() if echo else site.pages.get(self.path, b"got " + body)
        self.send_response(302 if self.path.startswith("/to/") else 200)
        if self.path.startswith("/to/"):
            self.send_header("Location", self.path.removeprefix("/to/"))
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply)

    do_GET = do_POST = do_HEAD = do_PUT = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of many tests."""


@dataclass
class Site:
    """A web server: its port, its pages, the requests it got."""

    port: int
    pages: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    """Headers of each request. The answer to `/echo` includes them."""


@contextmanager
def site(*, tls: bool, curve: str = "") -> Iterator[Site]:
    """curve: the only one that the server accepts for the key exchange."""
    server = _Server(("127.0.0.1", 0), _Site)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        if curve:
            context.set_ecdh_curve(curve)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    served = Site(port=server.server_address[1])
    server.site = served  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Sink:
    """A server that takes one connection at a time, does not answer, and stores the bytes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[bytearray] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                got = bytearray()
                self.connections.append(got)
                with connection, contextlib.suppress(OSError):
                    while chunk := connection.recv(65536):
                        got += chunk
                self._ended.set()

    def await_end(self) -> None:
        """Waits until a connection has ended, so that no more bytes can come."""
        assert self._ended.wait(PATIENCE), "the connection is still open"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


class Door:
    """What a jail has: a way to connect to its proxy; and what the proxy logged."""

    def __init__(self, service: EgressService, allow: Allow) -> None:
        self.ledger = EgressLedger(allow)
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = listener.getsockname()
        self.authority = make_authority_of_proxy() if allow.credentials else None
        self._session = service.open(listener, self.ledger, self.authority)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=PATIENCE)

    def ask(self, request: bytes) -> bytes:
        """Everything that comes back when the request is sent and nothing more."""
        with self.connect() as sock:
            sock.sendall(request)
            return read_all(sock)

    @property
    def reasons(self) -> list[str]:
        return [decision.reason for decision in self.ledger.decisions]

    def close(self) -> None:
        self._session.close()


def read_all(sock: socket.socket) -> bytes:
    """Until the peer closes or resets."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while chunk := sock.recv(65536):
            got += chunk
    return got


def read_head(sock: socket.socket) -> bytes:
    """Up to the empty line."""
    got = b""
    while not got.endswith(b"\r\n\r\n") and (byte := sock.recv(1)):
        got += byte
    return got


def hello(name: str | None, **settings: object) -> bytes:
    """A ClientHello of the ssl module for a server name. settings: attributes of its context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    for key, value in settings.items():
        setattr(context, key, value)
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()
