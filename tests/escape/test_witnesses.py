"""Listeners outside a jail that report whether anything came out: jails reach them, and no other process does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cenote_security.attacks import witnesses
from cenote_security.attacks.witnesses import Witnesses


def test_listeners_have_ports_that_nobody_had_before() -> None:
    """A client that keeps calling an ended server would be taken for an escape: this happened in a full run."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    with Witnesses() as one, Witnesses() as other:
        ports = [found.facts()[kind] for found in (one, other) for kind in ("tcp", "udp")]
    assert [] == [port for port in ports if first <= int(port) <= last]


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all others taken, the free one is used."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        free.close()
        monkeypatch.setattr(witnesses, "_PORTS", ports)
        monkeypatch.setattr(witnesses, "_ephemeral_ports", lambda: range(0))
        with witnesses._on_a_port_aside(socket.SOCK_STREAM) as found:
            assert ports[1] == found.getsockname()[1]


def test_none_that_is_free_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for ever."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(witnesses, "_PORTS", [taken.getsockname()[1]])
        monkeypatch.setattr(witnesses, "_ephemeral_ports", lambda: range(0))
        with pytest.raises(OSError, match="no port is free"):
            witnesses._on_a_port_aside(socket.SOCK_STREAM)


def test_who_comes_is_told_of_once() -> None:
    """Over TCP, by a datagram, by either socket of this machine."""
    with Witnesses() as found:
        facts = found.facts()
        socket.create_connection(("127.0.0.1", int(facts["tcp"]))).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"x", ("127.0.0.1", int(facts["udp"])))
        for name in (str(facts["socket"]), f"\0{facts['abstract']}"):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(name)
        assert [
            "a listener of kind AF_INET SOCK_DGRAM was reached",
            "a listener of kind AF_INET SOCK_STREAM was reached",
            "a listener of kind AF_UNIX SOCK_STREAM was reached",
            "a listener of kind AF_UNIX SOCK_STREAM was reached",
        ] == sorted(found.breaches(""))
        assert [] == found.breaches("")
