"""`cenote serve`: what it refuses before it listens, and how it listens."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cenote.cli.main import main
from cenote.doors.http_server import listen


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--host", "0.0.0.0"), 2, "give --tls-cert and --tls-key"),
        (("--tls-cert", "a.pem"), 2, "go together"),
        (("--durable",), 2, "give a --store"),
        (("--store", "x", "--address", "localhost:1"), 2, "leave --store or --address out"),
        (("--port", "70000"), 4, "choose another --port"),
    ],
)
def test_wrong_options(
    words: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert main(("serve", *words)) == status
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(("serve", "--port", str(taken.getsockname()[1]))) == 4
    assert "choose another --port" in capsys.readouterr().err


def test_answers_are_sent_at_once() -> None:
    """asyncio does so on sockets whose protocol is known; otherwise each answer waited 40 ms."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.slow
def test_the_token_is_in_a_private_file_and_the_server_ends_by_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cenote.cli.main", "serve", "--port", "0"]
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        base, where = line.removeprefix("listening on ").strip().split("; the token is in ")
        assert stat.S_IMODE(Path(where).stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {Path(where).read_text()}"}
        assert httpx.get(f"{base}/v1/runtimes", headers=headers, trust_env=False).json() == []
        server.terminate()
        assert server.wait(30) == 143
