"""A platform as `cenote up` starts it, with its own folders, and the processes that a test may kill."""

from __future__ import annotations

import json
import os
import resource
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.support.processes import everyone, runs, session_of, title
from tests.waiting import until

from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.reader import EntrySelection, selected
from cenote.gateway.process.daemon_lock import running_at
from cenote_security.errors import UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, connect

LOCKS = 10
"""RLIMIT_LOCKS, which Python has no name for and Linux has not used since 2.4: a soft limit on it marks a platform's
processes, whatever they run and whichever process is their parent.
"""


class StandingPlatform:
    """prefix: of each command, for example one that enters a network namespace."""

    def __init__(self, folder: Path, prefix: Sequence[str] = ()) -> None:
        self._prefix = tuple(prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CENOTE_", "RAY_"))}
        homes = {f"XDG_{each.upper()}_HOME": str(folder / each) for each in ("state", "config")}
        self.environment = kept | homes | {"HOME": str(folder)}  # where Ray would find a token of the user's
        # Ray has its workers run after all else, which on a busy machine is hardly ever: here all are alike.
        self.environment["RAY_worker_niceness"] = "0"
        self._state = folder / "state" / "cenote"
        self._config = folder / "config" / "cenote"
        self.address = ""
        self.mark = 100_000 + int.from_bytes(os.urandom(3))
        """A limit that all its processes have, jails included, and no others."""

    def up(self, *options: str) -> None:
        self.address = json.loads(self.command("up", "--port", "0", "--json", *options).stdout)["address"]

    @property
    def gateway(self) -> int:
        """The current process: one that was killed is restarted at the same address."""
        return _holder(self._state / "daemon.lock")

    @property
    def answers(self) -> bool:
        """Whether it is ready."""
        running = running_at(self._state / "daemon.lock")
        return running is not None and running.address != ""

    @property
    def restarts(self) -> int:
        """How often its process was restarted."""
        return (self._state / "platform.log").read_text(errors="replace").count("and is started again")

    @property
    def watcher(self) -> int:
        return _holder(self._state / "watch.lock")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Fails with the command's error output."""
        process = self.begin(*words)
        output, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Starts a command and returns without waiting."""
        line = [*self._prefix, sys.executable, "-m", "cenote.cli.main", *words]
        limits = resource.getrlimit(LOCKS)
        resource.setrlimit(LOCKS, (self.mark, limits[1]))
        try:
            return subprocess.Popen(
                line, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        finally:
            resource.setrlimit(LOCKS, limits)

    @property
    def state(self) -> Path:
        return self._state

    @property
    def token(self) -> str:
        return (self._config / "token").read_text().strip()

    def unmade(self) -> list[str]:
        """Runtimes that are being created."""
        with closing(sqlite3.connect(self._state / "gateway.db")) as database:
            return [id for (id,) in database.execute("SELECT id FROM runtimes WHERE made IS NULL")]

    def on_record(self, kind: str) -> list[AuditEvent]:
        files = log_files(self._state / "audit")
        return [entry.event for entry in selected(files, EntrySelection()) if entry.event.kind == kind]

    # -- its processes --

    @property
    def cluster(self) -> dict[str, object]:
        return dict(json.loads((self._state / "cluster.json").read_text()))

    def marked(self) -> list[int]:
        """All its processes: those of the cluster, the gateway's, descriptor stores, zygotes and jails."""
        return [pid for pid in everyone() if runs(pid) and _mark(pid) == str(self.mark)]

    @property
    def joined(self) -> dict[str, str]:
        """The cluster that it has joined, if it has none of its own."""
        return dict(json.loads((self._state / "joined.json").read_text()))

    def processes(self, kind: str = "") -> list[int]:
        """Processes of its cluster whose title has this prefix."""
        return [pid for pid in living_in(self.cluster["pid"]) if title(pid).startswith(kind)]

    def raylets(self) -> list[int]:
        return [pid for pid in living_in(self.cluster["pid"]) if "/raylet/raylet " in title(pid)]

    def secrets_of_teams(self) -> list[str]:
        return [folder.name for folder in (self._state / "teams").glob("*")]

    @property
    def store_folder(self) -> Path:
        until(lambda: any(self._state.glob("node-*")))  # the agent starts after the gateway
        (folder,) = self._state.glob("node-*")
        return folder

    @property
    def descriptor_store(self) -> int:
        return store_process_of(self.store_folder)

    def kept(self, prefix: str = "") -> list[str]:
        """Keys in its descriptor store; empty while that is not running."""
        client = DescriptorStoreClient(self.store_folder)
        try:
            return client.keys(prefix)
        except UnavailableError:
            return []
        finally:
            client.close()


def store_process_of(folder: Path) -> int:
    """The process of a node's descriptor store."""
    with connect(folder) as line:
        return int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def _holder(lock: Path) -> int:
    """Waits for the next holder if this one was just killed."""
    found = []

    def looked() -> bool:
        found.append(running_at(lock))
        return found[-1] is not None

    until(looked)
    assert found[-1] is not None
    return found[-1].pid


def living_in(session: object) -> list[int]:
    """The processes of a session, without zombies."""
    return [pid for pid in everyone() if runs(pid) and str(session_of(pid)) == str(session)]


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _mark(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[3] for line in lines if line.startswith("Max file locks")), "")
