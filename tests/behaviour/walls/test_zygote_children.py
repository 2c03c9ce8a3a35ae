"""What a zygote knows of its jails at any time: one of their processes may end between two looks."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cenote_security.walls.levels.none_level import NoneLevel
from cenote_security.walls.namespaces import open_host_proc
from cenote_worker.zygote.serve import Zygote


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with ExitStack() as opened:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in ends:
            opened.enter_context(end)
        host_proc = open_host_proc()
        life = os.pidfd_open(os.getpid())
        opened.callback(os.close, host_proc)
        opened.callback(os.close, life)
        level = NoneLevel(host_proc)
        opened.callback(level.close)
        yield Zygote(
            level=level,
            entry=lambda _frames, _settings: None,
            client=ends[0],
            client_life=life,
            host_proc=host_proc,
        )


def ended_child() -> int:
    """The pid of a child that has ended and was not collected."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_a_jail_is_known_when_its_launcher_is_gone(zygote: Zygote) -> None:
    """Though its birth was reported after the last look: it keeps its user, and a lingering zygote waits for it."""
    seat = zygote._seats.take(7)
    zygote._note_starts()
    warden = os.fork()
    if warden == 0:
        signal.pause()
        os._exit(0)
    os.write(zygote._starts_out, f"7 {warden}\n".encode())
    zygote._launchers[ended_child()] = 7
    try:
        zygote._reap()
        assert {warden: 7} == zygote._wardens
        assert {7: seat} == zygote._seats._taken
    finally:
        os.kill(warden, signal.SIGKILL)
        os.waitid(os.P_PID, warden, os.WEXITED | os.WNOWAIT)
        zygote._reap()
    assert {} == zygote._wardens


def test_a_jail_that_has_ended_is_forgotten(zygote: Zygote) -> None:
    """Though it was born and died since the last look: a lingering zygote does not wait for it for ever."""
    zygote._seats.take(7)
    zygote._launchers[ended_child()] = 7
    os.write(zygote._starts_out, f"7 {ended_child()}\n".encode())
    zygote._reap()
    zygote._note_starts()
    assert ({}, {}, {}) == (zygote._launchers, zygote._wardens, zygote._seats._taken)
