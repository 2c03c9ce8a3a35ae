"""A machine of a Ray cluster, as `ray start` makes it; several run on this host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

STORE = 2 * 10**9
"""Bytes of its object store: room for the largest value and for values not collected yet."""

PATIENCE = 60.0
_READY = "Ray runtime started"


class RayMachine:
    """A head, or another machine of the cluster at `head`. It is ready when the constructor returns."""

    def __init__(self, head: str = "") -> None:
        # Short: a socket path has at most 107 bytes.
        self._folder = Path(mkdtemp(prefix="cb-ray-", dir="/tmp"))
        self.address = head or f"127.0.0.1:{_free_port()}"
        port = self.address.rpartition(":")[2]
        role = ["--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false"]
        role += [f"--ray-client-server-port={_free_port()}"]
        with (self._folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
                    *([f"--address={head}"] if head else role),
                    *("--disable-usage-stats", f"--object-store-memory={STORE}"),
                ],
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Leaves its cluster, which otherwise considers it alive for a while and places actors on it."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE
        while _READY not in (said := (self._folder / "said").read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > until:
                raise OSError(f"Ray did not start: {said[-500:]}")
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
        return port
