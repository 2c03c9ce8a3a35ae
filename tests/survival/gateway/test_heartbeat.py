"""A hanging platform process is detected by missing heartbeats; one that is starting or ending is left alone."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from tests.waiting import PATIENCE, until

import cenote
from cenote.gateway.process.announcement import PipeAnnouncer, read_announcement
from cenote.gateway.process.daemon_lock import Running, running_at
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform
from cenote.gateway.process.restart_policy import Heartbeat
from cenote.gateway.process.service_manager import ServiceManager
from cenote.gateway.process.watcher import _Words
from cenote.gateway.store.state_folder import StateFolder

WATCHER = (
    "import sys, cenote.gateway.process.watcher as it; sys.exit(it.main(sys.argv[1], int(sys.argv[2]), 2.0))"
)
"""With a timeout that a test can wait for twice."""


def test_signs_of_life_are_waited_for_twice() -> None:
    """After a pause of the whole machine the first timeout ends before a heartbeat could arrive."""
    heartbeat = Heartbeat(patience=10.0)
    heartbeat.hear(100.0)
    assert not heartbeat.hangs(110.0)
    assert not heartbeat.hangs(110.1)  # late
    assert not heartbeat.hangs(120.1)
    assert heartbeat.hangs(120.2)


def test_a_pause_of_the_machine_is_no_standstill_of_the_process() -> None:
    """However long it was."""
    heartbeat = Heartbeat(patience=10.0)
    heartbeat.hear(0.0)
    assert not heartbeat.hangs(3600.0)
    heartbeat.hear(3601.0)
    assert not heartbeat.hangs(3611.0)


@pytest.mark.parametrize("told_to_end", [False, True])
def test_who_has_not_begun_or_is_to_end_gives_none(told_to_end: bool) -> None:
    """The watcher does not judge how long starting or ending takes."""
    heartbeat = Heartbeat(patience=10.0)
    if told_to_end:
        heartbeat.hear(0.0)
        heartbeat.end()
    assert not heartbeat.hangs(1000.0)
    assert not heartbeat.hangs(2000.0)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ([b"\n", b'\n{"a"', b": 1}\n\n", b"\n", b""], [b'{"a": 1}']),
        ([b'{"a": 1}', b""], [b'{"a": 1}']),  # killed after its last message
        ([b"\n\n", b""], [b""]),
        ([b""], [b""]),
    ],
)
def test_one_word_is_heard_among_signs_of_life(said: list[bytes], heard: list[bytes]) -> None:
    """However it is split; None where the process ended without one."""
    words = _Words()
    assert heard == [word for each in said if (word := words.add(each)) is not None]


def test_signs_of_life_never_wait() -> None:
    """They do not fail either: not when the pipe is full, and not when its reader is gone."""
    reading, writing = os.pipe()
    with PipeAnnouncer(writing) as told:
        os.set_blocking(reading, False)
        for _ in range(70_000):  # more than a pipe holds
            told.beat()
        assert {ord("\n")} == set(os.read(reading, 70_000))
        os.close(reading)
        told.beat()


def test_who_is_ending_gives_no_sign_to_anybody_else() -> None:
    """The watcher learns that no more will come; nothing is written to a later file with the pipe's number."""
    reading, writing = os.pipe()
    with open(reading, "rb") as heard, PipeAnnouncer(writing) as told, tempfile.TemporaryFile() as other:
        told.beat()
        told.ending()
        assert b"\n" == heard.read()
        os.dup2(other.fileno(), writing)
        told.beat()
        told.ending()
        assert 0 == os.fstat(writing).st_size
        os.close(writing)


@pytest.mark.slow
def test_a_platform_that_serves_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, from the loop that answers its clients."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    beats: list[int] = []
    options = PlatformOptions(state=StateFolder(path=tmp_path / "state"), port=0, without_ray=True)
    with platform(options, lambda: beats.append(1)):
        until(lambda: len(beats) > 2)


@pytest.mark.slow
def test_one_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same port, for clients that were connected before, with their tokens."""
    state = StateFolder(path=tmp_path / "state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with watched(state) as running:
        client = cenote.connect(running.address)
        assert 1 == len(client.describe().nodes)
        os.kill(running.pid, signal.SIGSTOP)
        other = until(lambda: ready_at(state, lambda found: found.pid != running.pid))
        assert running.address == other.address
        assert 1 == len(client.describe().nodes)
    assert "gives no sign of life and is killed" in state.log.read_text()


@pytest.mark.slow
def test_one_that_was_told_to_end_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever process sent the signal: the watcher does not limit the time that the end takes, and ends with it."""
    state = StateFolder(path=tmp_path / "state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with watched(state) as running:
        os.kill(running.pid, signal.SIGTERM)
        until(lambda: running_at(state.lock) is None)
    assert "no sign of life" not in state.log.read_text()


@pytest.mark.slow
def test_what_it_was_at_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each thread, because the cause could not be found otherwise."""
    state = StateFolder(path=tmp_path / "state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with watched(state) as running:
        os.kill(running.pid, signal.SIGUSR1)
        until(lambda: "in serve" in state.log.read_text())
        assert running == running_at(state.lock)  # it goes on


@contextmanager
def watched(state: StateFolder) -> Iterator[Running]:
    """A platform of one process, with the watcher of `cenote up` and a shorter timeout."""
    state.make()
    options = PlatformOptions(state=state, port=0, without_ray=True).to_json()
    reading, writing = os.pipe()
    with open(reading, "rb") as told, state.log.open("ab") as log:
        watcher = Popen(
            [sys.executable, "-P", "-c", WATCHER, options, str(writing)],
            pass_fds=(writing,),
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
        )
        os.close(writing)
        try:
            yield read_announcement(told.read())
        finally:
            watcher.terminate()
            assert 0 == watcher.wait(PATIENCE)


def ready_at(state: StateFolder, wanted: Callable[[Running], bool]) -> Running | None:
    found = running_at(state.lock)
    return found if found is not None and found.address and wanted(found) else None


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(abstract: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the socket that it names, a file or an abstract one, which child processes do not inherit."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        name = f"{folder.rpartition('/')[2]}" if abstract else f"{folder}/notify"
        listener.bind(f"\0{name}" if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        manager = ServiceManager.of_this_process()
        assert "NOTIFY_SOCKET" not in os.environ
        manager.ready()
        manager.beat()
        manager.ending()
        assert [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"] == [listener.recv(100) for _ in range(3)]


def test_nobody_else_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without systemd, or while it restarts, nothing is sent, and nothing fails or waits."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceManager.of_this_process().ready()
    ServiceManager(str(tmp_path / "gone")).beat()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "full"))
        manager = ServiceManager(str(tmp_path / "full"))
        for _ in range(10_000):
            manager.beat()
        assert select.select([deaf], [], [], 0)[0]
