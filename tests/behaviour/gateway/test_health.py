"""Platform health: what callers without a token may ask, and how each cause is reported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.behaviour.gateway.test_gateway_server import SlowNodes
from tests.support.gateway.world import World
from tests.waiting import until

from cenote.gateway.api.health import (
    RUNS_OUT,
    Cause,
    Condition,
    Health,
    certificate_causes,
    disk_causes,
    machine_causes,
    record_causes,
    store_causes,
)
from cenote.gateway.machines.nodes import MachineStatus
from cenote.gateway.store.state_locations import StateLocations
from cenote.gateway.tls.certificates import ShownCertificate, made_certificates
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub
from cenote_security.auth.certificate_authority import issue, make_authority
from cenote_security.auth.certificates import TlsMaterial
from cenote_security.errors import UnavailableError

NOW = datetime(2026, 11, 28, tzinfo=UTC)


@contextmanager
def stranger(world: World) -> Iterator[grpc.Channel]:
    """A caller without a token."""
    with grpc.insecure_channel(world.address) as channel:
        yield channel


def report(channel: grpc.Channel, token: str = "") -> platform_pb2.HealthReport:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    return PlatformServiceStub(channel).CheckHealth(platform_pb2.HealthQuestion(), metadata=metadata)


def lost(database: object) -> None:
    """An error as of a server that is unreachable."""
    from cenote.gateway.errors import DatabaseUnavailableError

    raise DatabaseUnavailableError("postgresql://secret-host/cenote", "connection refused")


def test_a_platform_is_ready_for_strangers_and_for_revoked_tokens(world: World) -> None:
    """No token is checked; this is the only such call."""
    world.nodes.describe()
    user = world.user("acme")
    world.stores.tokens.revoke(user.tenant, user.token_id)
    with stranger(world) as channel:
        assert report(channel).ready
        assert report(channel, user.token).ready
        with pytest.raises(grpc.RpcError):
            PlatformServiceStub(channel).Describe(platform_pb2.DescribePlatform())


def test_a_database_that_is_away_is_alive_and_not_ready(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both ways to ask, and ready again once the database is back. Its location is not shown."""
    monkeypatch.setattr("cenote.gateway.api.health.FRESH", 0.0)
    monkeypatch.setattr("cenote.gateway.api.server.LOOK_EVERY", 0.02)
    with stranger(world) as channel:
        until(lambda: served(channel, "ready"))
        with monkeypatch.context() as away:
            away.setattr(type(world.stores.database), "check_writing", lost)
            found = report(channel)
            until(lambda: not served(channel, "ready"))
            assert served(channel, "")
        assert (False, ["records"]) == (found.ready, [cause.subject for cause in found.causes])
        assert "the database cannot be used" in found.causes[0].text
        assert "secret-host" not in str(found)
        until(lambda: report(channel).ready)


def served(channel: grpc.Channel, name: str) -> bool:
    request = health_pb2.HealthCheckRequest(service=name)
    answer = health_pb2_grpc.HealthStub(channel).Check(request)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def test_a_platform_is_not_ready_before_it_was_looked_at() -> None:
    """For example while its node agents start: the call does not hang."""
    gate = threading.Event()

    def starting() -> list[Cause]:
        assert gate.wait(60)
        return []

    health = Health({"machines": starting}, patience=0.05)
    condition = asyncio.run(health.condition())
    assert "not ready: machines: no answer yet; the platform may still be starting" == str(condition)
    gate.set()
    until(lambda: asyncio.run(health.condition()).ready)


def test_a_check_that_hangs_is_a_cause_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported within the timeout, is not started twice, and is cleared when it has ended."""
    monkeypatch.setattr("cenote.gateway.api.health.FRESH", 0.0)
    gate, begun, seen = threading.Event(), [], []
    gate.set()

    def hangs() -> list[Cause]:
        begun.append(True)
        assert gate.wait(60)
        return []

    health = Health({"store": hangs, "disk": lambda: [full]}, seen.append, patience=0.05)
    full = Cause(subject="disk", text="full")
    until(lambda: asyncio.run(health.condition()).causes == (full,))
    seen.clear()
    gate.clear()
    begun.clear()
    for _ in range(2):
        condition = asyncio.run(health.condition())
        assert ["store", "disk"] == [cause.subject for cause in condition.causes]
        assert "hangs" in condition.causes[0].text
        assert not condition.ready
    assert ([condition], 1) == (seen, len(begun))
    gate.set()
    until(lambda: asyncio.run(health.condition()).causes == (full,))


def test_a_look_that_takes_long_keeps_what_the_last_one_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that do not answer take longer than a probe waits; that is reported as one condition."""
    monkeypatch.setattr("cenote.gateway.api.health.FRESH", 0.0)
    gate, silent, seen = threading.Event(), Cause(subject="machines", text="silent"), []
    gate.set()

    def look() -> list[Cause]:
        assert gate.wait(60)
        return [silent]

    health = Health({"machines": look}, seen.append, patience=0.05)
    until(lambda: asyncio.run(health.condition()).causes == (silent,))
    seen.clear()
    gate.clear()
    assert (silent,) == asyncio.run(health.condition()).causes
    assert [] == seen
    gate.set()


def test_a_check_that_fails_is_a_cause() -> None:
    """Whatever it raises."""

    def fails() -> list[Cause]:
        raise RuntimeError("a secret")

    condition = asyncio.run(Health({"store": fails}).condition())
    assert "not ready: store: a look at it failed with RuntimeError; the platform's log has more" == str(
        condition
    )


def test_a_warning_leaves_a_platform_ready() -> None:
    """The warning is reported."""
    condition = Condition(causes=(Cause(subject="disk", text="little is left", warning=True),))
    assert (True, "ready; disk: little is left") == (condition.ready, str(condition))


FULL_DISK = """
import subprocess, sys
from pathlib import Path
from cenote.gateway.api.health import disk_causes
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=True)
print(*disk_causes(folder, "it"))
with open(folder / "all", "wb") as file:
    try:
        while True:
            file.write(bytes(65536))
            file.flush()
    except OSError:
        pass
print(*(cause.text for cause in disk_causes(folder, "it") if not cause.warning))
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
print(*(cause.text for cause in disk_causes(folder, "it") if not cause.warning))
"""


def test_a_full_disk_and_one_that_is_read_only_are_said(tmp_path: Path) -> None:
    """On a real file system of four megabytes, in its own namespaces."""
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        sys.executable,
        "-c",
        FULL_DISK,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no namespaces here: {done.stderr[-200:]}")
    ready, full, read_only = done.stdout.splitlines()
    assert "" == ready
    assert "the disk of it is full; make room there" == full
    assert "the disk of it is read-only" in read_only


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """For example an unmounted file system."""
    (cause,) = disk_causes(tmp_path / "gone", "it")
    assert ("disk", False, True) == (cause.subject, cause.warning, "is gone" in cause.text)


def test_a_disk_with_little_room_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning says how much space is left."""
    monkeypatch.setattr("cenote.gateway.api.health.LOW_BYTES", 1 << 60)
    monkeypatch.setattr("cenote.gateway.api.health.LOW_SHARE", 2)
    (cause,) = disk_causes(tmp_path, "it")
    assert (True, True) == (cause.warning, "MiB are left" in cause.text)


def test_records_that_are_gone_are_said(world: World) -> None:
    """Writes to a removed file succeed, but the records are missing after the next start."""
    assert [] == record_causes(world.stores.database, "")
    (world.state.database).rename(world.state.path / "elsewhere")
    (cause,) = record_causes(world.stores.database, "")
    assert "the database's file is gone" in cause.text
    (world.state.path / "elsewhere").rename(world.state.database)
    (cause,) = record_causes(world.stores.database, "no space")
    assert "the audit log cannot be written" in cause.text


@pytest.mark.parametrize("store", ["", "folder", "memory://health"])
def test_a_store_that_is_there_is_no_cause(tmp_path: Path, store: str) -> None:
    """No store, a folder, and an empty object store."""
    place = str(tmp_path) if store == "folder" else store
    assert [] == [cause for cause in store_causes(StateLocations(place)) if not cause.warning]


def test_a_store_that_is_away_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was removed, and any exception of a library."""
    (cause,) = store_causes(StateLocations(str(tmp_path / "gone")))
    assert ("store", False) == (cause.subject, cause.warning)
    assert str(tmp_path) not in cause.text
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("no route to host")

    monkeypatch.setattr(memory, "ls", refuses)
    (cause,) = store_causes(StateLocations("memory://health"))
    assert "the store of durable runtimes cannot be reached" in cause.text


def test_a_store_that_was_moved_away_is_not_begun_anew(tmp_path: Path) -> None:
    """Nor is an empty folder, as of a disk that is not mounted any more, taken for it."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    states = StateLocations(str(store))
    states.check_store()
    store.rename(elsewhere)
    (cause,) = store_causes(states)
    assert ("store", False) == (cause.subject, cause.warning)
    assert "is gone; put it back" in cause.text
    assert not store.exists()
    store.mkdir()
    (cause,) = store_causes(states)
    assert "another folder is in the place" in cause.text
    store.rmdir()
    elsewhere.rename(store)
    assert [] == [cause for cause in store_causes(states) if not cause.warning]


class Machines(SlowNodes):
    """Machines, some of which do not answer."""

    def __init__(self, *silent: bool) -> None:
        super().__init__()
        self._silent = silent

    def describe(self) -> list[MachineStatus]:
        return [MachineStatus(id=f"n{n}", address="", silent=silent) for n, silent in enumerate(self._silent)]


class NoCluster(SlowNodes):
    def describe(self) -> list[MachineStatus]:
        raise UnavailableError("the cluster does not answer: 10.0.0.7")


@pytest.mark.parametrize(
    ("nodes", "said", "ready"),
    [
        (Machines(False, False), "", True),
        (Machines(False, True), "1 of 2 node agents do not answer", True),
        (Machines(True), "1 of 1 node agents do not answer", False),
        (Machines(), "no machine takes runtimes", False),
        (NoCluster(), "the Ray cluster does not answer", False),
    ],
)
def test_machines_are_looked_at(nodes: SlowNodes, said: str, ready: bool) -> None:
    """One machine that accepts runtimes is enough. No address is shown."""
    causes = machine_causes(nodes)
    assert ready == all(cause.warning for cause in causes)
    assert said in " ".join(cause.text for cause in causes)
    assert "10.0.0.7" not in str([cause.text for cause in causes])


@pytest.mark.parametrize(
    ("left", "said", "ready"),
    [
        (RUNS_OUT + timedelta(seconds=1), "", True),
        (RUNS_OUT, "it expires on", True),
        (timedelta(0), "it expired on 2026-11-28", False),
    ],
)
def test_certificates_run_out(left: timedelta, said: str, ready: bool) -> None:
    """A warning two weeks before they expire; afterwards the platform is not ready."""
    own = issue(make_authority("a", NOW), ["here"], ["server"], NOW, left)
    causes = certificate_causes({"it": own.certificate}, NOW)
    assert ready == all(cause.warning for cause in causes)
    assert said in " ".join(cause.text for cause in causes)


def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path) -> None:
    """Checked once a minute at the most; an unusable certificate is not served."""
    shown = [made_certificates(tmp_path / "one"), made_certificates(tmp_path / "two")]
    now, made = [0.0], iter(shown)

    def make() -> TlsMaterial:
        try:
            return next(made)
        except StopIteration:
            raise UnavailableError("the disk is away") from None

    certificate = ShownCertificate(make, clock=lambda: now[0])
    assert shown[0] == certificate.material()
    now[0] = 59.0
    assert shown[0] == certificate.material()
    now[0] = 61.0
    assert shown[1] == certificate.material()
    now[0] = 200.0
    assert shown[1] == certificate.material()
