"""Errors for users who reach something other than a platform that knows them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tests.support.remote.small_platform import SmallPlatform

from cenote.connection import connect
from cenote.gateway.tls.certificates import made_certificates
from cenote.runtime.remote import platform_client
from cenote_security.errors import NotAuthenticatedError, UnavailableError

Listen = Callable[[Path | None], str]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """A server that answers no call, with a certificate of an authority in a folder, or without TLS."""
    servers = []

    def start(folder: Path | None) -> str:
        server = grpc.server(ThreadPoolExecutor(1))
        servers.append(server)
        if folder is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            own = made_certificates(folder).own
            credentials = grpc.ssl_server_credentials([(own.key, own.certificate)])
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None)


@pytest.mark.parametrize(
    ("served", "trusted", "remedy"),
    [
        ("one", None, "if it has TLS, name its ca.pem in CENOTE_CA"),
        ("one", "two", "CENOTE_CA names another authority"),
        (None, "two", "has no TLS: check the address, or unset CENOTE_CA"),
    ],
)
def test_one_side_has_another_tls(
    listen: Listen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    served: str | None,
    trusted: str | None,
    remedy: str,
) -> None:
    """The error names the variable that is wrong, or missing."""
    monkeypatch.delenv("CENOTE_CA", raising=False)
    address = listen(tmp_path / served if served else None)
    if trusted:
        made_certificates(tmp_path / trusted)
        monkeypatch.setenv("CENOTE_CA", str(tmp_path / trusted / "ca.pem"))
    with pytest.raises(UnavailableError, match=remedy):
        connect(address, "t").describe()


def test_nobody_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may exist that is overloaded: the error does not suggest to start a platform."""
    monkeypatch.setattr(platform_client, "DEADLINE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="in time: a platform there has too much to do") as failed:
            connect(address, "t").describe()
    assert "cenote up" not in str(failed.value)
    assert "at a standstill and is replaced within half a minute" in str(failed.value)
    assert "fewer clients" not in str(failed.value)


def test_nobody_has_a_token(platform: SmallPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that none was found, and not that the token is wrong."""
    monkeypatch.delenv("CENOTE_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(NotAuthenticatedError, match="no token is known here; set CENOTE_TOKEN"):
        connect(platform.address).runtime("x")
