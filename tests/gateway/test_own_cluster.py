"""A cluster of a platform's own, as far as nothing has to be started."""

from __future__ import annotations

import socket

import pytest

from cenote.gateway.own_cluster_unsafe import EPHEMERAL_PORTS, FIRST_PORT, _free_port

pytestmark = pytest.mark.skipif(
    int(EPHEMERAL_PORTS.read_text().split()[0]) <= FIRST_PORT,
    reason="here the kernel gives all ports to whoever wants any",
)


def test_a_port_that_nobody_is_given() -> None:
    """A connection that is made before the cluster is up does not take it, nor do all starts take the same."""
    end = int(EPHEMERAL_PORTS.read_text().split()[0])
    ports = {_free_port() for _ in range(10)}
    assert ports <= set(range(FIRST_PORT, end))
    assert len(ports) > 1


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another is chosen."""
    with socket.socket() as taken:
        taken.bind(("", _free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr("random.sample", lambda ports, count: [port, port + 1])
        assert port != _free_port()
