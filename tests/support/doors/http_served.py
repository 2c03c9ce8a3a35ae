"""An HTTP application on a port of the loopback, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from cenote import SandboxPolicy
from cenote.doors.callers import Callers
from cenote.doors.http_app import http_app
from cenote.doors.http_server import listen, server


@contextmanager
def served(callers: Callers, policy: SandboxPolicy | None = None) -> Iterator[str]:
    """Yields its base URL."""
    listening = listen("127.0.0.1", 0)
    serving = server(http_app(callers, policy=policy))
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        serving.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def client(base: str, token: str, timeout: float = 30) -> httpx.Client:
    return httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=timeout, trust_env=False
    )
