"""A Ray cluster that belongs to no platform: machines as `ray start` creates them, all of them on this one."""

from __future__ import annotations

import json
import os
import secrets
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
from cenote_worker.node.ray.cluster import PLACES

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
    places: how many runtimes it takes, as its custom resource; 0 for a machine without that.
    prefix: of its command, for example one that enters a network namespace, where it has the address `ip`.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        head: str = "",
        *,
        ip: str = "127.0.0.1",
        client_port: int = 0,
        places: int = 0,
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
                    *([f"--resources={json.dumps({PLACES: places})}"] if places else []),
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


AUTOSCALER = """
import runpy, secrets, sys
sys.modules["ray.dashboard.optional_deps"] = None
from ray.autoscaler._private import monitor
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
FakeMultiNodeProvider._next_hex_node_id = lambda _: secrets.token_hex(28)
runpy.run_path(monitor.__file__, run_name="__main__")
"""
"""Ray's own, with its machines without what `ray[default]` would add, see RAY. The ids of its pretended machines
differ from the first character on, as those of others do.
"""

_PRETENDED = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}


def named_head() -> tuple[str, dict[str, str]]:
    """An id for a head, and the environment in which Ray gives it that."""
    id = secrets.token_hex(28)
    return id, {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": id}


class FakeAutoscaler:
    """Adds machines with that many places to a cluster, each of them some processes here, and removes idle ones.

    head: its id and its address. most: machines at once, without the head. idle: seconds without an actor after which
    one is removed.
    """

    def __init__(
        self, head: tuple[str, str], environment: Mapping[str, str], *, places: int, most: int, idle: float
    ) -> None:
        id, address = head
        self.folder = Path(tempfile.mkdtemp(prefix="ct-auto-", dir="/tmp"))
        kinds = {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "rented": {
                "resources": {"CPU": 1, PLACES: places, "object_store_memory": _STORE},
                "node_config": {},
                "max_workers": most,
            },
        }
        provider = {"type": "fake_multinode", "gcs_address": address, "use_node_id_as_ip": True}
        settings = {
            "cluster_name": "fake",
            "max_workers": most,
            "idle_timeout_minutes": idle / 60,
            "provider": {
                **provider,
                "head_node_id": id,
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
            },
            "available_node_types": kinds,
            "head_node_type": "ray.head.default",
            **{key: {} for key in ("auth", "file_mounts")},
            **{key: [] for key in _NO_COMMANDS},
            "file_mounts_sync_continuously": False,
        }
        (self.folder / "settings.json").write_text(json.dumps(settings))
        with (self.folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", AUTOSCALER),
                    *(f"--logs-dir={self.folder}", f"--gcs-address={address}", "--monitor-ip=127.0.0.1"),
                    f"--autoscaling-config={self.folder / 'settings.json'}",
                ],
                env=dict(environment) | QUICK_NEWS | _PRETENDED | {"RAY_TMPDIR": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What it has decided, and why."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("monitor.log*"))

    def end(self) -> None:
        """Ends it and its machines. Never raises."""
        for pid in living_in(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_NO_COMMANDS = (
    *("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands"),
    *("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)
