"""A platform's own cluster, as far as nothing has to be started."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.cluster.standing import living_in

from cenote.gateway.machines import own_cluster_unsafe
from cenote.gateway.machines.joined_cluster import clean_up
from cenote.gateway.machines.own_cluster_unsafe import (
    EPHEMERAL_PORTS,
    FIRST_PORT,
    OwnCluster,
    _free_ports,
    own_cluster,
)
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.errors import CenoteError

below_the_kernels = pytest.mark.skipif(
    int(EPHEMERAL_PORTS.read_text().split()[0]) <= FIRST_PORT,
    reason="here the kernel gives all ports to whoever wants any",
)


@below_the_kernels
def test_ports_that_nobody_is_given() -> None:
    """A connection that is made before the cluster is up does not take one; no two are equal."""
    end = int(EPHEMERAL_PORTS.read_text().split()[0])
    ports = _free_ports(10)
    assert set(ports) <= set(range(FIRST_PORT, end))
    assert len(set(ports)) == 10


@below_the_kernels
def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ports are chosen."""
    with socket.socket() as taken:
        port, *others = _free_ports(10)  # more than requested: other tests may take one of them meanwhile
        taken.bind(("", port))
        monkeypatch.setattr("random.sample", lambda ports, count: [port, *others])
        assert set(_free_ports(2)) <= set(others)


def test_what_another_machine_has_written_down_names_nobody_here(tmp_path: Path) -> None:
    """In a restarted container the former cluster's process id may be that of any thread: since 6.9 Linux reports
    that with a different error.
    """
    (tmp_path / "left").touch()
    thread = threading.Thread(target=(release := threading.Event()).wait)
    thread.start()
    try:
        assert thread.native_id is not None
        former = OwnCluster(pid=thread.native_id, began="1", address="127.0.0.1:1", folder=str(tmp_path))
        former.end()
        assert (False, False) == (former.living, tmp_path.exists())
    finally:
        release.set()
        thread.join()


LARGE = """
import os, time
if os.fork() == 0:
    held = bytearray(b"x") * 500_000_000
    print("held", flush=True)
    time.sleep(600)
time.sleep(600)
"""
"""A process whose child takes the kernel a while to end."""


def test_nothing_of_a_cluster_runs_when_it_has_ended(tmp_path: Path) -> None:
    """The caller then starts the next one, and checks which ports are free."""
    first = subprocess.Popen([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, start_new_session=True)
    assert first.stdout is not None
    with first.stdout as output:
        assert b"held\n" == output.readline()
        first.kill()
        first.wait()
        assert living_in(first.pid)
        OwnCluster(pid=first.pid, began="1", address="127.0.0.1:1", folder=str(tmp_path)).end()
        assert [] == living_in(first.pid)


class Unwritable(StateFolder):
    """As on a full disk: the cluster's id cannot be recorded."""

    @property
    def cluster(self) -> Path:
        return self.path / "missing" / "cluster.json"


def test_a_cluster_that_cannot_be_written_down_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later process would find it. The caller gets the reason."""
    started: list[OwnCluster] = []

    def start(state: StateFolder) -> OwnCluster:
        started.append(really_start(state))
        return started[-1]

    really_start = own_cluster_unsafe._start
    monkeypatch.setattr(own_cluster_unsafe, "RAY", "import time; time.sleep(600)")
    monkeypatch.setattr(own_cluster_unsafe, "_start", start)
    with pytest.raises(CenoteError, match="No such file"):
        own_cluster(Unwritable(path=tmp_path))
    (cluster,) = started
    assert [] == living_in(cluster.pid)
    assert not Path(cluster.folder).exists()


def test_a_copy_of_a_folder_has_no_part_in_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's platform would end it, with all that runs there. A moved folder is the same one."""
    monkeypatch.setattr(own_cluster_unsafe, "RAY", "import time; time.sleep(600)")
    monkeypatch.setattr(OwnCluster, "wait", lambda cluster: True)
    first, copy = StateFolder(path=tmp_path / "first"), StateFolder(path=tmp_path / "copy")
    first.make()
    cluster, _ = own_cluster(first)
    try:
        shutil.copytree(first.path, copy.path)
        assert not clean_up(copy)
        other, fresh = own_cluster(copy)
        other.end()
        assert (True, True) == (fresh, cluster.living)
        moved = StateFolder(path=first.path.rename(tmp_path / "moved"))
        assert (cluster, False) == own_cluster(moved)
    finally:
        cluster.end()
