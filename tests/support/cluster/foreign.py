"""A Ray cluster that belongs to no platform: machines as `ray start` creates them, all of them on this one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.cluster.standing import living_in
from tests.support.processes import title
from tests.waiting import until

from cenote.gateway.machines.own_cluster_unsafe import RAY, _free_ports

QUICK_NEWS = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""By default a cluster needs a quarter of a minute to detect a lost machine."""

_STORE = 256 * 1024 * 1024
"""Bytes of Ray's object store of one machine."""


class RayMachine:
    """The head of a cluster, or another machine of the one at `head`. Its processes are a session of their own.

    client_port: of a server for remote drivers, which is slow to start; 0 for none.
    prefix: of its command, for example one that enters a network namespace, where it has the address `ip`.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        head: str = "",
        *,
        ip: str = "127.0.0.1",
        client_port: int = 0,
        prefix: Sequence[str] = (),
    ) -> None:
        # Not in TMPDIR: a socket path may have at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="ct-ray-", dir="/tmp"))
        (port,) = _free_ports(1)
        self.address = head or f"{ip}:{port}"
        program = ("-m", "ray.scripts.scripts") if client_port else ("-c", RAY)
        with (self.folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [
                    *(*prefix, sys.executable, "-P", *program, "start", "--block"),
                    *([f"--address={head}"] if head else self._head(client_port)),
                    *(f"--node-ip-address={ip}", "--disable-usage-stats", "--include-log-monitor=false"),
                    *("--num-cpus=1", f"--object-store-memory={_STORE}"),
                ],
                env=dict(environment) | QUICK_NEWS,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
            )

    def _head(self, client_port: int) -> list[str]:
        return [
            *("--head", f"--port={self.address.rpartition(':')[2]}", f"--temp-dir={self.folder}"),
            *("--include-dashboard=false", "--no-monitor"),
            *([f"--ray-client-server-port={client_port}"] if client_port else []),
        ]

    def wait(self) -> None:
        """Waits until it is ready."""
        until(lambda: "Ray runtime started" in self.said or self._process.poll() is not None)
        assert "Ray runtime started" in self.said, self.said

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text(errors="replace")

    def processes(self, kind: str = "") -> list[int]:
        """Those whose title has this prefix."""
        return [pid for pid in living_in(self._process.pid) if title(pid).startswith(kind)]

    def raylet(self) -> int:
        (found,) = [pid for pid in living_in(self._process.pid) if "/raylet/raylet " in title(pid)]
        return found

    def end(self) -> None:
        """Ends whatever is left of it. Never raises."""
        for pid in living_in(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
