"""Platforms as processes: options, the lock that identifies the process, what it reports when it starts."""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Never

import pytest

from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.reader import entries
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.machines.joined_cluster import JoinedCluster, check_address, is_outdated
from cenote.gateway.process import daemon, watcher
from cenote.gateway.process.announcement import PipeAnnouncer, announce, read_announcement
from cenote.gateway.process.daemon_lock import DaemonLock, Running, running_at
from cenote.gateway.process.daemon_unsafe import Daemon, spawn
from cenote.gateway.process.launch import ShutdownReport, start_platform, stop_platform
from cenote.gateway.process.logs import without_secrets
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import leave_token, serve
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.stores import Stores
from cenote_security.auth.tokens import Scope
from cenote_security.errors import CenoteError, RejectedError, SecretFileError, UnavailableError, UsageError
from cenote_security.loopback import is_loopback

STATE = StateFolder(path=Path("/state/cenote"))
RUNNING = Running(pid=12, since=1.5, address="127.0.0.1:8470")


@pytest.mark.parametrize(
    "options",
    [
        PlatformOptions(state=STATE),
        PlatformOptions(
            state=STATE, host="0.0.0.0", port=0, tls=True, certificate=Path("/c"), key=Path("/k")
        ),
        PlatformOptions(state=STATE, ray_address="auto", relay=True, shared_memory=1 << 30),
    ],
)
def test_options_reach_the_other_process_as_they_are(options: PlatformOptions) -> None:
    """Options that are written and read again are equal."""
    assert options == PlatformOptions.from_json(options.to_json())


def test_credentials_in_urls_are_not_logged() -> None:
    """A store's user and password, in any option."""
    options = PlatformOptions(
        state=STATE, store="sftp://me:secret@host/path", model_endpoints=("http://a/v1",)
    )
    assert options.to_json().replace("me:secret", "***") == without_secrets(options.to_json())


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 65536},
        {"port": -1},
        {"host": "0.0.0.0"},
        {"host": "10.0.0.1"},
        {"host": "example.com"},
        {"certificate": Path("/c"), "key": Path("/k")},
        {"tls": True, "certificate": Path("/c")},
    ],
)
def test_options_that_make_no_sense(wrong: dict[str, object]) -> None:
    """Above all: nothing listens off the loopback without TLS."""
    with pytest.raises(UsageError):
        PlatformOptions(state=STATE, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_loopback_addresses(host: str) -> None:
    """An address that only this machine reaches needs no TLS."""
    assert is_loopback(host)


def test_a_full_disk_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the disk."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = DaemonLock(tmp_path / "daemon.lock")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(UnavailableError, match=r"daemon\.lock' cannot be written: No space left"):
        lock.write(Running(pid=1, since=0.0))
    monkeypatch.setattr(os, "pwrite", lambda *_: 3)
    with pytest.raises(UnavailableError, match="No space left"):
        lock.write(Running(pid=1, since=0.0))
    lock.release()


def test_the_lock_says_who_runs(tmp_path: Path) -> None:
    """While it is held, and whatever the file contains after that."""
    path = tmp_path / "lock"
    assert running_at(path) is None
    assert running_at(Path("/dev/null/lock")) is None  # no folder can be created there
    lock = DaemonLock(path)
    assert running_at(path) is None  # it has not written its id yet
    lock.write(RUNNING)
    assert RUNNING == running_at(path)
    with pytest.raises(UnavailableError, match=r"runs here already, at 127\.0\.0\.1:8470 \(pid 12\)"):
        DaemonLock(path)
    lock.release()
    path.write_text('{"pid": 1, "since": 0.0, "address": "127.0.0.1:1"}')
    assert running_at(path) is None
    DaemonLock(path).release()
    (tmp_path / "link").symlink_to(path)  # as unreadable as another user's file, for root too
    with pytest.raises(UnavailableError, match="cannot be read"):
        running_at(tmp_path / "link")
    with pytest.raises(UnavailableError, match="cannot be used"):
        StateFolder(path=Path("/dev/null/cenote")).make()


@pytest.mark.parametrize(
    "error", [UsageError("a"), RejectedError("b"), UnavailableError("c"), SecretFileError("/x", "d")]
)
def test_why_a_platform_could_not_start_is_heard(error: CenoteError) -> None:
    """As an error of the same family, with its text."""
    with pytest.raises(CenoteError) as caught:
        read_announcement(announced(error))
    assert str(error) == str(caught.value)
    assert isinstance(error, type(caught.value))


@pytest.mark.parametrize("process", [daemon, watcher])
def test_what_the_system_refuses_is_heard(
    process: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets the error: a log on the same full disk would contain nothing."""

    def full(*_: object) -> Never:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/file")

    monkeypatch.setattr(process, {daemon: "serve", watcher: "DaemonLock"}[process], full)
    reading, writing = os.pipe()
    assert 1 == process.main(PlatformOptions(state=StateFolder(path=tmp_path)).to_json(), writing)
    with (
        open(reading, "rb") as heard,
        pytest.raises(UnavailableError, match=r"No space left .* '/state/file'"),
    ):
        read_announcement(heard.read())


def test_a_process_for_which_there_is_no_memory_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended for lack of memory is restarted all the same; the caller that waits for the first gets an
    error."""
    starts: list[int] = []

    class NotTold:
        def wait(self, _patience: float) -> bool:
            return False

    @contextmanager
    def spawn(*_given: object) -> Iterator[SimpleNamespace]:
        starts.append(1)
        if len(starts) == 2:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        yield SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))

    monkeypatch.setattr(watcher, "spawn", spawn)
    ends = iter([9, 0])
    monkeypatch.setattr(watcher.PlatformWatcher, "_end_of", lambda *_: next(ends))
    reading, writing = os.pipe()
    with open(reading, "rb") as heard, open(writing, "wb") as told:
        watching = watcher.PlatformWatcher(PlatformOptions(state=StateFolder(path=tmp_path)), told, NotTold())  # type: ignore[arg-type]
        watching._ready = True
        assert (0, 3) == (watching.run(), len(starts))
        assert "Cannot allocate memory" in heard.read().decode()


def test_a_platform_outlives_whoever_waits_for_it(tmp_path: Path) -> None:
    """The process that started it may be killed before it is ready."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as told:
        watching = watcher.PlatformWatcher(PlatformOptions(state=StateFolder(path=tmp_path)), told, None)  # type: ignore[arg-type]
        watching._heard(announced(RUNNING))
        assert watching._ready


def test_a_platform_that_is_told_to_end_while_it_starts_is_never_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would connect to a platform that is about to end."""

    @contextmanager
    def starting(*_: object) -> Iterator[Running]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield RUNNING
        ended.append("orderly")

    ended, heard = list[str](), Heard()
    monkeypatch.setattr("cenote.gateway.process.platform.platform", starting)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        serve(PlatformOptions(state=StateFolder(path=tmp_path)), heard)
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (["orderly"], ["ending"]) == (ended, heard.said)


class Heard:
    """An Announcer that records its calls."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def ready(self, _running: Running) -> None:
        self.said.append("ready")

    def beat(self) -> None:
        self.said.append("beat")

    def condition(self, condition: object) -> None:
        self.said.append(str(condition))

    def ending(self) -> None:
        self.said.append("ending")


def test_the_first_word_counts() -> None:
    """A platform that was ready and fails later reports nothing more to the process that started it."""
    reading, writing = os.pipe()
    with open(reading, "rb") as heard, PipeAnnouncer(writing) as told:
        told.ready(RUNNING)
        told.failed(UsageError("later"))
        told.ending()
        assert RUNNING == read_announcement(heard.read())


def announced(said: Running | CenoteError) -> bytes:
    reading, writing = os.pipe()
    with open(reading, "rb") as heard, open(writing, "wb") as pipe:
        announce(pipe, said)
        return heard.read()


def test_a_process_that_ends_between_two_looks_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its resources must be cleaned up: the platform itself no longer can."""
    state = StateFolder(path=tmp_path)
    lock = DaemonLock(state.watch)
    lock.write(Running(pid=os.getpid(), since=1.5, address=""))

    def look(path: Path) -> Running | None:
        found = running_at(path)
        if path == state.watch and found is not None:
            lock.release()
        return found

    monkeypatch.setattr("cenote.gateway.process.launch.running_at", look)
    assert ShutdownReport(platform=None, forced=False) == stop_platform(state)


def test_a_process_that_ends_behind_the_last_look_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended by itself before it was signalled; there is no process left to signal."""
    state = StateFolder(path=tmp_path)
    former = subprocess.Popen(["sleep", "600"])
    running, looks = Running(pid=former.pid, since=1.5, address=""), list[Path]()

    def look(path: Path) -> Running | None:
        looks.append(path)
        if len(looks) == 3:
            former.kill()
            former.wait()
        return running if path == state.watch and len(looks) <= 3 else None

    monkeypatch.setattr("cenote.gateway.process.launch.running_at", look)
    assert not stop_platform(state).forced
    assert former.returncode is not None


def test_a_failed_start_ends_nothing_of_a_former_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its resources on a cluster may be in use: the new process ends without touching them."""
    monkeypatch.setattr("cenote.gateway.process.launch._MODULE", "this")
    state = StateFolder(path=tmp_path)
    JoinedCluster(address="127.0.0.1:1", platform="p").keep(state)
    with pytest.raises(UnavailableError, match="ended before it was ready"):
        start_platform(PlatformOptions(state=state, ray_address="127.0.0.1:1"))
    assert state.joined.exists()


def test_a_start_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would become a platform later, since it has no lock yet by which it is found."""
    begun: list[Daemon] = []

    @contextmanager
    def noted(*arguments: Any) -> Iterator[Daemon]:
        with spawn(*arguments) as daemon:
            begun.append(daemon)
            yield daemon

    monkeypatch.setattr("cenote.gateway.process.launch.spawn", noted)
    monkeypatch.setattr("cenote.gateway.process.launch.READY_PATIENCE", 0.0)
    state = StateFolder(path=tmp_path)
    with pytest.raises(UnavailableError, match=r"was not ready in 0 s.*when less runs.*platform\.log"):
        start_platform(PlatformOptions(state=state, without_ray=True))
    assert begun[0].process.returncode is not None
    assert running_at(state.lock) is None


@pytest.mark.parametrize(("version", "outdated"), [("1.2.3", False), ("1.2.2", True), ("", True)])
def test_what_another_version_has_left_is_outdated(tmp_path: Path, version: str, outdated: bool) -> None:
    """Also that of a version which did not record itself; nothing is, where nothing was left."""
    state = StateFolder(path=tmp_path)
    assert not is_outdated(JoinedCluster.kept(state), "1.2.3")
    JoinedCluster(address="127.0.0.1:1", platform="p", version=version).keep(state)
    assert outdated == is_outdated(JoinedCluster.kept(state), "1.2.3")


def test_only_a_cluster_that_outlives_the_platform_keeps_runtimes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="add --ray-address"):
        PlatformOptions(state=StateFolder(path=tmp_path), keep_runtimes=True)


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    """Ray would try for minutes, with no readable error."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"127.0.0.1:{there.getsockname()[1]}"
        check_address(address)
        check_address(f"ray://{address}")
    with socket.socket() as taken:  # so that no other process listens there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for gone in (address, f"ray://{address}"):
            with pytest.raises(UnavailableError, match=f"no Ray cluster answers at {gone}"):
                check_address(gone)


@pytest.mark.parametrize("wrong", ["", "cluster", "host:", ":6379", "host:port", "ray://"])
def test_what_is_no_address_of_a_cluster(wrong: str) -> None:
    """The error contains an example of an address."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        check_address(wrong)


def test_the_first_token_is_made_once(tmp_path: Path) -> None:
    """It is readable by its owner only, valid, and reused; a token of another platform is set aside."""
    path = tmp_path / "config" / "token"
    with Stores(StateFolder(path=tmp_path / "one")) as stores:
        leave_token(stores, path)
        first = path.read_text()
        leave_token(stores, path)
        assert first == path.read_text()
        assert "default" == stores.tokens.authenticate(first).tenant_name
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    with Stores(StateFolder(path=tmp_path / "other")) as stores:
        leave_token(stores, path)
        assert "default" == stores.tokens.authenticate(path.read_text()).tenant_name
    assert first == path.with_name("token.old").read_text()
    path.chmod(0o644)
    with Stores(StateFolder(path=tmp_path / "other")) as stores, pytest.raises(SecretFileError):
        leave_token(stores, path)


def test_the_first_token_of_an_earlier_version_gets_what_has_come_since(tmp_path: Path) -> None:
    """It has all scopes, and the change is recorded; a token that an operator created stays as it is."""
    path = tmp_path / "token"
    with Stores(StateFolder(path=tmp_path / "state")) as stores:
        leave_token(stores, path)
        text = path.read_text()
        first = stores.tokens.authenticate(text)
        stores.database.execute("UPDATE tokens SET scopes = ?", "admin runtimes:read")
        leave_token(stores, path)
        assert text == path.read_text()
        assert frozenset(Scope) == stores.tokens.authenticate(text).scopes
        changes = [entry.event.facts for entry in entries(stores.audit_folder) if entry.event.kind == "token"]
        assert ["issued", "extended"] == [facts["change"] for facts in changes]
        path.write_text(stores.tokens.issue(first.tenant, ["runtimes:read"], note="to look at things").text)
        leave_token(stores, path)
        assert {Scope.RUNTIMES_READ} == stores.tokens.authenticate(path.read_text()).scopes


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "empty"])
def test_a_database_that_is_lost_is_not_made_anew(tmp_path: Path, is_gone: bool) -> None:
    """A new one would lock all tenants out, and lack all that is stored: the error says what to do."""
    folder = StateFolder(path=tmp_path / "state")
    with Stores(folder) as stores:
        stores.recorder.record(AuditEvent(kind="token.created", facts={})).result(30)
    with Stores(folder):
        pass
    kept = folder.database.read_bytes()
    for path in folder.path.glob("gateway.db*"):
        path.unlink()
    if not is_gone:
        folder.database.touch(0o600)
    with pytest.raises(DatabaseUnavailableError, match=r"empty or gone.*put it back .* or move '.*' away"):
        Stores(folder)
    folder.database.write_bytes(kept)
    Stores(folder).close()


def test_the_state_is_its_owners_alone(tmp_path: Path) -> None:
    """The folder and each file in it, whatever the umask."""
    before = os.umask(0)
    try:
        with Stores(StateFolder(path=tmp_path / "state")) as stores:
            stores.tenants.create("acme")
    finally:
        os.umask(before)
    paths = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert {0} == {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths}
