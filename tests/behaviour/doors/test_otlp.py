"""An unreachable collector delays nothing, and does not fill a log."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

RUN = """
import logging, sys, time
from cenote import PythonRuntime, SandboxPolicy
from cenote.doors import otlp

logging.basicConfig(stream=sys.stderr)
otlp.PATIENCE = 0.2
flush = otlp.export_to(sys.argv[1], "test")
with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
    assert all(runtime.execute("x = 1").success for _ in range(600)), "more than one batch"
began = time.monotonic()
flush()
print(time.monotonic() - began < 10)
"""
"""The library's own limit is 30 seconds."""


@pytest.fixture(params=["closed", "silent"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of an unreachable collector, and of one that accepts and never answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        if request.param == "silent":
            listening.listen(8)
        elif request.param == "closed":
            listening.close()
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow
def test_a_collector_that_is_away_holds_nothing_up(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, url], capture_output=True, text=True, timeout=100)
    assert "True\n" == done.stdout, done.stderr
    assert len([line for line in done.stderr.splitlines() if "opentelemetry" in line]) <= 2, done.stderr
