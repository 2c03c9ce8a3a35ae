"""How the HTTP application is served: its socket, its TLS, a thread of its own where a process has others."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from cenote_security.errors import UnavailableError

PATIENCE: Final = 5
"""Seconds for requests to end when the server does."""

_BACKLOG: Final = 512

_GATHERED: Final = 64 * 1024
"""Bytes of an answer that may wait for the loop's next turn; more is written at once, so that a slow reader makes
the application wait."""


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """option: what another port is chosen with. Raises UnavailableError."""
    plain = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in plain else socket.AF_INET
        listening = socket.create_server((plain, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error}; choose another {option}") from None
    # asyncio sends small packets at once on sockets that say that they are TCP, and `create_server` makes one that
    # does not: each answer would wait 40 ms for an acknowledgement.
    return socket.socket(fileno=listening.detach())


def url_of(scheme: str, host: str, listening: socket.socket) -> str:
    """Where clients reach what listens there by that name. IPv6 addresses stand in brackets."""
    plain = host.strip("[]")
    return f"{scheme}://{f'[{plain}]' if ':' in plain else plain}:{listening.getsockname()[1]}"


def server(app: ASGIApp, tls: ssl.SSLContext | None = None) -> uvicorn.Server:
    """Runs on the thread that calls its `run`, which takes the socket."""
    config = uvicorn.Config(
        app,
        http=_GatheringProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )
    config.load()
    config.ssl = tls
    return uvicorn.Server(config)


class _GatheringProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen when uvicorn is imported
    """Sends the head and the body of an answer as one packet; uvicorn writes two, and each wakes the client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gathering = GatheringTransport(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", gathering))


class GatheringTransport:
    """A transport that writes what one turn of the event loop gives it together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        if data and not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting += data
        if len(self._waiting) > _GATHERED:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpThread:
    """A server on a thread of its own."""

    def __init__(self, app: ASGIApp, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """listening: taken over."""
        self._server = server(app, tls)
        self._listening = listening
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="cenote-http", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends running requests after some patience, and the thread."""
        self._server.should_exit = True
        self._thread.join(2 * PATIENCE)
        self._listening.close()
