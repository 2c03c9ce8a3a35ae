"""A Ray cluster of one machine, started for a platform: processes of their own, which outlive the gateway's.

A restarted gateway finds its cluster by a file in the platform's state folder.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from typing import Final

from cenote.gateway.store.state_folder import StateFolder
from cenote_security.auth.secret_files import kept_secret, replace_file
from cenote_security.errors import CenoteError, UnavailableError

START_PATIENCE: Final = 60.0
"""Seconds for the processes of a cluster to come up; five to ten are usual."""

END_PATIENCE: Final = 10.0
"""Seconds for its processes to end on request, before they are killed."""

FIRST_PORT: Final = 20_000
"""Ray's workers use the ports from 10,002 on."""

PORTS_TRIED: Final = 20

RAY: Final = """
import sys
sys.modules["ray.dashboard.optional_deps"] = None
from ray._private.node import Node
Node.start_ray_client_server = Node.start_api_server = lambda *_, **__: None
from ray.scripts.scripts import main
main()
"""
"""Starts a cluster without what `ray[default]` would add where that is installed: servers that nothing here calls, at
ports that are open to the network. A raylet does not live without them, nor when they take more than fifteen seconds
to say where they listen, as they do on a busy machine (ray-project/ray#65983).

Also without the server for remote drivers and the rest of the dashboard, which nothing here calls either: each would
be a process that takes a second to start, while users wait. Ray has no option for that. A Ray that calls these
methods otherwise starts both, and works as well.
"""

OBJECT_STORE: Final = 256 * 2**20
"""Bytes. Values of runtimes are never in Ray's store, only the agents' replies. By default it takes a third of all
memory, and in a container, whose /dev/shm is too small, a file in /tmp.
"""

EPHEMERAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The range from which the kernel chooses ports for connections, and for listeners without a port of their own."""

_LOOK_EVERY: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCluster:
    """pid, began: of its first process; `began` is in the kernel's clock ticks, so that a reused pid is recognised.

    address: of its GCS. folder: for its sockets and logs, removed with it. state: identifies the folder whose
    platform it was started for, independent of its path.
    """

    pid: int
    began: str
    address: str
    folder: str
    state: str = ""

    @property
    def living(self) -> bool:
        return _began(self.pid) == self.began

    def wait(self) -> bool:
        """Waits until it is up: its raylet listens, the last process to come up and the first that a driver calls."""
        deadline = time.monotonic() + START_PATIENCE
        while self.living and time.monotonic() < deadline:
            if self._listens:
                return True
            time.sleep(_LOOK_EVERY)
        return False

    def outlive(self) -> None:
        """Returns when its raylet has died, and the cluster no longer works; its other processes follow."""
        while self.living and (lines := self._lines()):
            for line in lines:
                with line, suppress(OSError):
                    line.recv(1)  # it sends nothing to strangers: this is its end
            time.sleep(_LOOK_EVERY)

    @property
    def broken(self) -> bool:
        """Whether its raylet was there and is gone."""
        return bool(self._places) and not self._listens

    @property
    def _places(self) -> list[Path]:
        return list(Path(self.folder).glob("session_2*/sockets/raylet"))

    @property
    def _listens(self) -> bool:
        lines = self._lines()
        for line in lines:
            line.close()
        return bool(lines)

    def _lines(self) -> list[socket.socket]:
        return [line for line in map(_line, self._places) if line is not None]

    def end(self) -> None:
        """Ends all processes of the cluster and removes what they wrote."""
        if self.living:
            with suppress(ProcessLookupError):
                self._end_first()
        if not _began(self.pid):  # else the pid was reused, with a session of its own
            _end_session(self.pid)
        rmtree(self.folder, ignore_errors=True)

    def _end_first(self) -> None:
        process = os.pidfd_open(self.pid)
        try:
            if self.living:
                _end(process)
        finally:
            os.close(process)


def own_cluster(state: StateFolder) -> tuple[OwnCluster, bool]:
    """The running cluster of this platform, else a new one; and whether it is new.

    Raises UnavailableError, SecretFileError where it cannot be recorded.
    """
    kept = kept_cluster(state)
    if kept is not None:
        if kept.living and not kept.broken and kept.wait():
            return kept, False
        kept.end()
    cluster = _start(state)
    written = json.dumps(asdict(cluster)).encode()
    try:
        replace_file(state.cluster, written)  # now, so that it is found if this process is killed
        if not cluster.wait():
            raise UnavailableError(f"Ray could not be started; {state.cluster_log} says why")
    except CenoteError:
        cluster.end()
        forget(state)
        raise
    return cluster, True


def kept_cluster(state: StateFolder) -> OwnCluster | None:
    """The recorded cluster; it may have ended since. None in a copy of the folder, whose cluster it is not."""
    try:
        kept = OwnCluster(**json.loads(state.cluster.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return None if kept.living and kept.state not in ("", _identity(state)) else kept


def forget(state: StateFolder) -> None:
    """Removes the record of a cluster that was ended."""
    state.cluster.unlink(missing_ok=True)


def guard(state: StateFolder) -> None:
    """Makes Ray require a token: its ports are open to the network, and each gives control of the cluster."""
    kept_secret(state.cluster_token, lambda: os.urandom(32).hex().encode())
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(state.cluster_token)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def _start(state: StateFolder) -> OwnCluster:
    port, clients, environments = _free_ports(3)
    with state.cluster_log.open("ab") as log:
        # Not in TMPDIR: the path of a socket has 107 bytes, of which Ray takes 63.
        folder = tempfile.mkdtemp(prefix="cenote-ray-", dir="/tmp")
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", RAY, "start", "--head", "--block"),
                *(f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"),
                # The first for a Ray that starts that server all the same: its default port may be another cluster's.
                # The raylet waits for the address of the second no longer than for those above.
                *(f"--ray-client-server-port={clients}", f"--runtime-env-agent-port={environments}"),
                # No machines are added, and what actors print goes to no driver.
                *("--no-monitor", "--include-log-monitor=false"),
                *("--disable-usage-stats", f"--object-store-memory={OBJECT_STORE}"),
                f"--num-cpus={os.cpu_count() or 1}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    return OwnCluster(
        pid=process.pid,
        began=_began(process.pid),
        address=f"127.0.0.1:{port}",
        folder=folder,
        state=_identity(state),
    )


def _identity(state: StateFolder) -> str:
    """An id that moves with the folder, and is invalid in copies of it."""
    status = state.path.stat()
    return f"{status.st_dev}:{status.st_ino}"


def _line(path: Path) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(path))
    except OSError:
        line.close()
        return None
    return line


def _free_ports(count: int) -> list[int]:
    """Distinct ports, preferably outside the kernel's ephemeral range: the kernel could assign such a port again
    before Ray has bound it.
    """
    below = range(FIRST_PORT, int(EPHEMERAL_PORTS.read_text().split()[0]))
    with ExitStack() as held:
        return [_free_port(below, held) for _ in range(count)]


def _free_port(below: range, held: ExitStack) -> int:
    """Bound until `held` is closed."""
    for port in (*random.sample(below, min(PORTS_TRIED, len(below))), 0):
        sock = held.enter_context(socket.socket())
        with suppress(OSError):
            sock.bind(("", port))
            taken: int = sock.getsockname()[1]
            return taken
    raise UnavailableError("no port is free for a cluster; end what holds them")


def _began(pid: int) -> str:
    """The start time of a process; empty when there is none, or it is a zombie."""
    fields = _fields(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _end_session(leader: int) -> None:
    """Ends the session of a killed first process: its children continue without it, and may start more meanwhile.

    Returns when none is left: the next cluster takes its ports, and its folder is removed.
    """
    deadline = time.monotonic() + END_PATIENCE
    while time.monotonic() < deadline and (left := _handles(leader)):
        for process in left:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        for process in left:
            select.select([process], [], [], max(0.0, deadline - time.monotonic()))
            os.close(process)


def _handles(session: int) -> list[int]:
    """Of all processes of the session; the caller closes them."""
    handles = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        if not _in_session(pid, session):
            continue
        with suppress(OSError):  # it has ended meanwhile
            handle = os.pidfd_open(pid)
            if _in_session(pid, session):  # else the pid was reused
                handles.append(handle)
            else:
                os.close(handle)
    return handles


def _in_session(pid: int, session: int) -> bool:
    fields = _fields(pid)
    return bool(fields) and fields[0] not in "ZX" and int(fields[3]) == session


def _end(process: int) -> None:
    signal.pidfd_send_signal(process, signal.SIGTERM)
    if not select.select([process], [], [], END_PATIENCE)[0]:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], END_PATIENCE)
