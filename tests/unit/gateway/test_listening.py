"""Where a platform can listen, and the error where it cannot."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import check_listening, platform
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.errors import UnavailableError

LONG = 70 * "a"
"""No label of a name is that long, so no name server is queried."""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1", "[::1]"])
def test_what_this_machine_has(host: str) -> None:
    """By name or address."""
    check_listening(host, 0)


@pytest.mark.parametrize(
    ("host", "said"), [(LONG, "no machine is known as"), ("203.0.113.1", "is no address of this machine")]
)
def test_what_it_has_not(host: str, said: str) -> None:
    """The error names the option to change."""
    with pytest.raises(UnavailableError, match=f"{said}.*--host"):
        check_listening(host, 0)


def test_a_port_that_is_taken_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a cluster is started, which takes ten seconds, and ended again."""
    monkeypatch.setattr("cenote.gateway.process.platform.ray_nodes", None)
    state = StateFolder(path=tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = PlatformOptions(state=state, port=other.getsockname()[1])
        with pytest.raises(UnavailableError, match=r"the port is taken.*--port"), platform(options):
            pass
    check_listening("127.0.0.1", options.port)


def test_a_port_that_has_just_been_left(tmp_path: Path) -> None:
    """A restarted gateway listens where the former one had connections."""
    with socket.create_server(("127.0.0.1", 0)) as former:
        address = former.getsockname()
        with socket.create_connection(address) as client:
            former.accept()[0].close()  # first, so that the kernel remembers its end
            client.recv(1)
    check_listening(*address)
