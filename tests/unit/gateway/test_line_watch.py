"""An idle connection is cut, whatever that takes; after a pause of the whole machine it gets its full time again."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from tests.waiting import PATIENCE, until

from cenote.gateway.store import postgresql
from cenote.gateway.store.postgresql import ConnectionWatchdog

SECONDS = 20.0


class Looks:
    """Stands in for the event that closes a watch: its wait ends when the test says so."""

    def __init__(self) -> None:
        self._next: SimpleQueue[bool] = SimpleQueue()
        self._waits: SimpleQueue[float] = SimpleQueue()

    def wait(self, seconds: float) -> bool:
        self._waits.put(seconds)
        return self._next.get(timeout=PATIENCE)

    def set(self) -> None:
        self._next.put(True)

    def pass_by(self) -> float:
        """One poll. Returns how long the watch waits before it."""
        seconds = self._waits.get(timeout=PATIENCE)
        self._next.put(False)
        until(lambda: not self._waits.empty())
        return seconds


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    beside = SimpleNamespace(Event=lambda: looks, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr(postgresql, "threading", beside)
    return looks


def test_a_line_without_an_answer_is_cut(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its timeout is over, and not after a pause of the whole machine, in which no peer could answer. The answer
    ends the timeout, and the next request gets a full one.
    """
    watch = ConnectionWatchdog(SECONDS)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with watch.over(ours.fileno()):
            looks.pass_by()
            with monkeypatch.context() as patched:
                patched.setattr(time, "monotonic", lambda own=time.monotonic: own() + 3 * SECONDS)
                looks.pass_by()
            theirs.send(b"late")
            assert b"late" == ours.recv(4)
        with watch.over(ours.fileno()):
            waited = 0.0
            while waited < SECONDS:
                waited += looks.pass_by()
                with pytest.raises(BlockingIOError):
                    ours.recv(1)
            looks.pass_by()
            assert b"" == ours.recv(1)
        watch.close()


@pytest.fixture
def watch() -> Iterator[ConnectionWatchdog]:
    watch = ConnectionWatchdog(0.04)
    yield watch
    watch.close()


def cut(watch: ConnectionWatchdog) -> bool:
    """Whether a reader that waits on the connection learns that it has ended."""
    near, far = socket.socketpair()
    with near, far, watch.over(near.fileno()):
        near.settimeout(10)
        return near.recv(1) == b""


def test_who_waits_finds_that_the_line_has_ended(watch: ConnectionWatchdog) -> None:
    assert cut(watch)
    assert cut(watch)


def test_a_line_that_cannot_be_cut_at_once(
    watch: ConnectionWatchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this process has no free descriptor, it is cut as soon as there is one."""
    dup, tried = os.dup, []

    def no_descriptors(descriptor: int) -> int:
        tried.append(descriptor)
        if len(tried) == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return dup(descriptor)

    monkeypatch.setattr(postgresql.os, "dup", no_descriptors)
    assert cut(watch)
    assert 2 == len(tried)


def test_a_line_that_has_ended_by_itself(watch: ConnectionWatchdog) -> None:
    """It does not stop the watching of the next one."""
    with socket.socket() as nowhere, watch.over(nowhere.fileno()):
        until(lambda: watch._waiting is None)
    assert cut(watch)
