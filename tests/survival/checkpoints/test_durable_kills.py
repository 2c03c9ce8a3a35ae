"""Kill -9 of a durable runtime's client at random moments: the next finds the acknowledged state or one step more."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]


class Clients:
    """One client at a time, each killed with its jail some time after it has begun to work."""

    def __init__(self, store: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.checkpoints.durable_child", str(store), *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.acknowledged = 0
        self.found: list[str] = []

    def kill_one(self, steps: int, delay: float) -> None:
        """Lets a client take some steps, kills it after that delay, and reads all of its acknowledgements."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        pid = taken = 0
        for line in self.process.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "over":
                return
            self._hear(kind, rest)
            pid = int(rest) if kind == "pid" else pid
            taken += kind in ("found", "began", "did")
            if kind != "pid" and taken == steps + 1:
                threading.Timer(delay, os.kill, (pid, signal.SIGKILL)).start()

    def _hear(self, kind: str, rest: str) -> None:
        """Each client finds a complete state, no older than the acknowledged one and at most one step newer."""
        if kind == "did":
            self.acknowledged = int(rest)
        elif kind == "found":
            x, logged, same, lines = re.findall(r"\w+", rest)
            assert (x, x, "True") == (logged, lines, same)
            assert self.acknowledged <= int(x) <= self.acknowledged + 1
            self.acknowledged = int(x)
            self.found.append(rest)


@pytest.fixture(params=[(), ("sleeping",)], ids=["awake", "sleeping"])
def clients(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Clients]:
    """In the second case most kills come while an image is written, or while its process wakes."""
    clients = Clients(tmp_path / "store", *request.param)
    yield clients
    assert clients.process.stdin is not None
    clients.process.stdin.close()
    assert 0 == clients.process.wait(PATIENCE)
    assert clients.process.stdout is not None
    clients.process.stdout.close()


def kill(clients: Clients, times: int) -> None:
    rng = random.Random(20261122)
    for _ in range(times):
        clients.kill_one(steps=rng.randrange(4), delay=rng.uniform(0, 0.05))
    assert times - 1 == len(clients.found)
    assert clients.acknowledged > times / 2


@pytest.mark.slow
@pytest.mark.timeout(400)  # each client starts a zygote of its own: a second of CPU
def test_no_acknowledged_step_is_lost(clients: Clients) -> None:
    """Ten times in a row, each from the state that the last one left."""
    kill(clients, 10)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_acknowledged_step_is_lost_in_the_long_run(clients: Clients) -> None:
    """Two hundred times."""
    kill(clients, 200)
