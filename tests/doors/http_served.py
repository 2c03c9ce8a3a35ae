"""An HTTP application on a port of the loopback, in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from cenote import SandboxPolicy
from cenote.doors.callers import Callers
from cenote.doors.http_app import http_app


@contextmanager
def served(callers: Callers, policy: SandboxPolicy | None = None) -> Iterator[str]:
    """Yields its base URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(http_app(callers, policy=policy), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def client(base: str, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
    )
