"""When the watchdog checks, and that checking one jail never prevents checks of the others."""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE, until

from cenote_worker.process.log_context import log_context, logged_about
from cenote_worker.supervisor.account import process_tree, tree_memory
from cenote_worker.supervisor.account.jail_account import MemoryLimit
from cenote_worker.supervisor.account.process_tree import (
    FILE,
    IDLE,
    LONGEST,
    SHARE,
    SHORTEST,
    ProcessTreeAccount,
    Watchdog,
    memory_trigger,
    pause,
)
from cenote_worker.supervisor.account.tree_memory import MAX_DESCRIPTORS, memory_of
from cenote_worker.supervisor.account.worker_process import WorkerProcess
from cenote_worker.supervisor.exit_reason import JailExit

ROOM = st.integers(-(2**40), 2**40)


@settings(max_examples=200)
@given(ROOM, st.floats(0, 10))
def test_looking_costs_a_bounded_share(room: int, took: float) -> None:
    """With any number of processes in a jail, which makes checks slow."""
    assert pause(room, took, idle=False) >= max(SHORTEST, SHARE * took)


@settings(max_examples=200)
@given(ROOM, ROOM)
def test_the_nearer_the_limit_the_sooner(one: int, other: int) -> None:
    near, far = sorted((one, other))
    assert pause(near, 0, idle=False) <= pause(far, 0, idle=False) <= LONGEST


def test_an_idle_jail_is_looked_at_too() -> None:
    """A process that a cell left in the background may still grow."""
    assert IDLE == pause(0, 0, idle=True)


class Counted:
    """Always wants to be checked."""

    def __init__(self, fails: bool = False, rest: float = 0.0) -> None:
        """rest: minimum of seconds between two checks."""
        self.rest = rest
        self.due = self.soonest = 0.0
        self.fails = fails
        self.enough = threading.Event()

    def look(self) -> None:
        self.enough.set()
        self.due = time.monotonic() + 10 * PATIENCE
        self.soonest = time.monotonic() + self.rest
        if self.fails:
            raise RuntimeError("a look that fails")


def test_a_failure_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, with the runtime that it is about, and the next one is checked."""
    watchdog = Watchdog()
    about = list[dict[str, str]]()
    caplog.handler.addFilter(lambda _: about.append(logged_about()) or True)  # type: ignore[func-returns-value]
    first = Counted(fails=True)
    with log_context(runtime="rt_1"):
        watchdog.add(first)
    assert first.enough.wait(PATIENCE)
    until(lambda: [{"runtime": "rt_1"}] == about)
    second = Counted(fails=False)
    watchdog.add(second)
    assert second.enough.wait(PATIENCE)
    watchdog.remove(first)
    watchdog.remove(second)


@pytest.fixture
def pressure() -> Iterator[tuple[Callable[[], int], Callable[[], None]]]:
    """A descriptor that stands for the kernel's, and a function that makes it report memory pressure."""
    near, far = socket.socketpair()

    def say() -> None:
        far.send(b"!", socket.MSG_OOB)

    with near, far:
        yield near.fileno, say


def test_short_memory_makes_it_look_at_once(
    pressure: tuple[Callable[[], int], Callable[[], None]],
) -> None:
    """Except a jail with slow checks that was checked just now: that would not help."""
    descriptor, say = pressure
    watchdog = Watchdog(descriptor)
    quick, slow = Counted(), Counted(rest=10 * PATIENCE)
    for one in (slow, quick):
        watchdog.add(one)
        assert one.enough.wait(PATIENCE)
        one.enough.clear()
    say()
    assert quick.enough.wait(PATIENCE)
    assert not slow.enough.is_set()
    for one in (slow, quick):
        watchdog.remove(one)


def test_a_pressure_that_breaks_is_left_alone() -> None:
    """It would wake the thread forever; the clock continues."""
    near, far = socket.socketpair()
    with near:
        far.close()
        watchdog = Watchdog(near.fileno)
        watchdog._listen()
        assert not watchdog._sleep(20)
        assert [] == watchdog._poll.poll(0)


def test_the_kernel_s_trigger() -> None:
    """It can be set without privileges, and can be polled."""
    trigger = memory_trigger()
    if trigger is None:
        pytest.skip(f"this kernel has no {FILE}, or takes no triggers")
    poll = select.poll()
    poll.register(trigger, select.POLLPRI)
    assert not any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    os.close(trigger)


def test_no_trigger(tmp_path: Path) -> None:
    """If the kernel has no such account, or does not permit access, the clock alone decides."""
    assert memory_trigger(str(tmp_path / "missing")) is None
    assert memory_trigger("/dev/full") is None


QUIET: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
"""Without this process's own, in which data may wait."""


def test_what_waits_in_sockets_and_pipes() -> None:
    """It is the machine's memory as well. A pipe counts as full: each write may take a page."""
    near, far = socket.socketpair()
    reading, writing = os.pipe()
    ends = [near.fileno(), far.fileno(), reading, writing]
    room = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    with near, far, subprocess.Popen(["sleep", "600"], pass_fds=ends, **QUIET) as jail:
        try:
            empty = tree_memory._under_way(tree_memory._opened([jail.pid], -1))
            near.send(bytes(60_000))
            sent = tree_memory._under_way(tree_memory._opened([jail.pid], -1))
            os.write(writing, b"x")
            written = tree_memory._under_way(tree_memory._opened([jail.pid], -1))
            assert 60_000 <= sent - empty < 2 * 60_000
            assert room == written - sent
            assert sent <= memory_of(jail.pid, -1, 0, 2**60, 0)
        finally:
            jail.kill()
            os.close(reading)
            os.close(writing)


@pytest.mark.parametrize(("links", "each"), [(20_000, 1), (1_500, 20)])
def test_links_that_were_not_looked_at(links: int, each: int) -> None:
    """Their number is estimated by repeated encounters: many links, or few that many processes have."""
    paths = [number for number in range(links) for _ in range(each)]
    seen = random.Random(1).sample(paths, MAX_DESCRIPTORS)
    opened = tree_memory._Opened({}, dict.fromkeys(seen, ""), MAX_DESCRIPTORS, MAX_DESCRIPTORS / len(paths))
    assert links / 2 < opened.factor * len(opened.links) < links * 2


class Worker(WorkerProcess):
    """The worker of a jail in which nothing else is visible."""

    def __init__(self, pid: int) -> None:
        super().__init__(os.getpid())
        self.pid = pid


@pytest.mark.parametrize(
    ("seen", "ends"),
    [([{7}, {7}], True), ([{7}, {8}], False), ([{7}, set(), {7}], False), ([{1, 7}, {1, 7}], False)],
    ids=["for long", "each for a moment", "at times", "as the worker is"],
)
def test_a_process_that_hides_its_memory(
    monkeypatch: pytest.MonkeyPatch, seen: list[set[int]], ends: bool
) -> None:
    """One that runs an unreadable program. Each is hidden as it starts; if all are, the jail is not ended."""
    looks = iter(seen)
    monkeypatch.setattr(process_tree, "HIDING", 0.0)
    monkeypatch.setattr(tree_memory, "hidden", lambda _warden: frozenset(next(looks)))
    account = ProcessTreeAccount(Worker(1), MemoryLimit(policy=2**60, base=0), Watchdog(), -1)
    deaths: list[JailExit] = []
    account.watch(deaths.append)
    for _ in seen:
        account._mappings_due = 0.0
        account.look()
    assert ["memory"] * ends == [death.reason for death in deaths]
    account.close()


def test_a_file_that_somebody_else_pays_for() -> None:
    """It is open in the jail, like memory that a fork writes to, and counts as long as it is not lent."""
    memory = os.memfd_create("filled")
    os.posix_fallocate(memory, 0, 64 * 2**20)
    with subprocess.Popen(["sleep", "600"], pass_fds=[memory]) as jail:
        try:
            counted = memory_of(jail.pid, -1, 0, 2**60, 0)
            lent = memory_of(jail.pid, -1, 0, 2**60, 0, {os.fstat(memory).st_ino})
            assert 60 * 2**20 < counted - lent < 68 * 2**20
        finally:
            jail.kill()
            os.close(memory)
