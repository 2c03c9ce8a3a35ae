"""States that share one base copy: each comes and goes by itself, and the copy goes with the last."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from cenote_worker.jail.snapshots.protocol import BEGINNING
from cenote_worker.zygote.processes import start_time_at, start_time_of
from cenote_worker.zygote.warden.snapshot_store import MOST, Copy, SnapshotStore

BINDINGS = "AAAA"
LATER = (2**50, 0)


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Pids of idle processes."""
    started = list[int]()
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        started.append(pid)
    yield started
    for pid in started:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def shelf(pids: list[int]) -> SnapshotStore:
    """A snapshot store with a copy of step 1, and the bindings of steps 2 and 3."""
    shelf = SnapshotStore()
    shelf.add(pids[0], 1, 7, socket.socketpair()[0])
    assert shelf.bind(pids[0], 2, LATER, 7, BINDINGS)
    assert shelf.bind(pids[0], 3, LATER, 7, BINDINGS)
    return shelf


def steps(shelf: SnapshotStore) -> list[object]:
    return [one["step"] for one in shelf.told()]


def ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_the_last_one_is_the_base(shelf: SnapshotStore) -> None:
    """It has the files of its copy."""
    assert shelf.base is not None
    assert (3, 7, BINDINGS, LATER) == (
        shelf.base.step,
        shelf.base.files,
        shelf.base.bindings,
        shelf.base.born,
    )


def test_what_began_before_it_was_told_is_older(pids: list[int]) -> None:
    """At the latest one tick later; a process that began in that tick may be younger, and counts as younger."""
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert start_time_at(now + tick) > start_time_of(pids[1])
    assert start_time_at(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 3600 * 10**9) < start_time_of(pids[1])


def test_memory_is_that_of_the_copy_once(shelf: SnapshotStore) -> None:
    assert [len(BINDINGS)] * 2 == [one["memory"] for one in shelf.told()][1:]


def test_only_the_copy_that_came_last_can_be_told_of(shelf: SnapshotStore, pids: list[int]) -> None:
    """A dropped copy, or one that the worker does not come from, is no base for bindings."""
    assert not shelf.bind(pids[1], 4, LATER, 7, BINDINGS)
    shelf.add(pids[1], 4, 7, socket.socketpair()[0])
    assert not shelf.bind(pids[0], 5, LATER, 7, BINDINGS)
    assert shelf.bind(pids[1], 5, LATER, 7, BINDINGS)
    assert [1, 2, 3, 4, 5] == steps(shelf)


def test_a_copy_stays_as_long_as_anything_rests_on_it(shelf: SnapshotStore, pids: list[int]) -> None:
    shelf.add(pids[1], 4, 7, socket.socketpair()[0])
    for step in (1, 2):
        state = shelf.find(step)
        assert state is not None
        shelf.drop(state)
        assert set(pids) == shelf.pids
    state = shelf.find(3)
    assert state is not None
    shelf.drop(state)
    assert {pids[1]} == shelf.pids


def test_a_copy_that_has_ended_takes_all_along(shelf: SnapshotStore, pids: list[int]) -> None:
    shelf.forget(pids[0])
    assert [] == steps(shelf)
    assert shelf.base is None


def test_a_broken_copy_takes_all_along(shelf: SnapshotStore, pids: list[int]) -> None:
    shelf.add(pids[1], 4, 7, socket.socketpair()[0])
    state = shelf.find(2)
    assert state is not None
    shelf.give_up(state.copy)
    assert [4] == steps(shelf)
    assert {pids[1]} == shelf.pids


def test_what_is_to_go_on_may_have_ended_just_then(shelf: SnapshotStore, pids: list[int]) -> None:
    """It is no base any more once it is dropped, even if no stored state depends on it."""
    state = shelf.base
    assert state is not None
    shelf.forget(pids[0])
    shelf.base = state
    assert state.wake() is None
    shelf.give_up(state.copy)
    assert shelf.base is None


@pytest.mark.parametrize("last_words", [b"", b'{"pid": 0}', b"no JSON"])
def test_a_copy_that_ends_when_it_is_to_go_on(pids: list[int], last_words: bytes) -> None:
    """Whatever it sends, or nothing: it is broken, and the warden continues with the next."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if last_words:
        there.send(last_words)
    there.shutdown(socket.SHUT_WR)
    copy = Copy(pid=pids[0], line=here)
    assert copy.wake({}) is None
    there.close()
    copy.close()


def test_each_has_its_own_files(shelf: SnapshotStore, pids: list[int]) -> None:
    """Versions without a state are dropped, up to the newest that was reported."""
    assert shelf.bind(pids[0], 3, LATER, 9, BINDINGS)
    assert {"files": [7, 9], "newest": 9} == shelf.files
    assert shelf.bind(pids[0], 3, LATER, 7, BINDINGS)
    assert {"files": [7], "newest": 9} == shelf.files


def test_no_more_are_kept_than_copies_would_be(shelf: SnapshotStore, pids: list[int]) -> None:
    """The copy's own state may go before theirs."""
    for step in range(4, 40):
        shelf.bind(pids[0], step, LATER, 7, BINDINGS)
    assert MOST == len(steps(shelf))
    assert 39 in steps(shelf)
    assert not ended(pids[0])


def test_a_step_that_is_told_again(shelf: SnapshotStore, pids: list[int]) -> None:
    """The later one is meant; its label stays."""
    shelf.name(3, "here")
    assert shelf.bind(pids[0], 3, LATER, 7, "BBBB")
    assert [1, 2, 3] == steps(shelf)
    state = shelf.labelled("here")
    assert state is not None
    assert "BBBB" == state.bindings


def test_giving_up_what_costs_a_cell_too_much(shelf: SnapshotStore, pids: list[int]) -> None:
    """A state costs nothing more if it depends on the copy of another state in use."""
    shelf.hold([2])
    shelf.clear()
    assert [1, 2, 3] == steps(shelf)
    shelf.hold([])
    shelf.clear()
    assert [] == steps(shelf)
    assert not shelf.bind(pids[0], 4, LATER, 7, BINDINGS)


def test_what_a_worker_begins_with_is_a_state_when_it_says_so(pids: list[int]) -> None:
    """It takes no process; processes started after the worker are not part of it."""
    shelf = SnapshotStore()
    assert ([], frozenset()) == (steps(shelf), shelf.pids)
    assert shelf.add_beginning(pids[0], 0, 7)
    assert ([0], frozenset()) == (steps(shelf), shelf.pids)
    assert shelf.base is not None
    assert (start_time_of(pids[0]), 7) == (shelf.base.born, shelf.base.files)
    assert [0] == [one["memory"] for one in shelf.told()]
    assert not shelf.add_beginning(pids[0], 1, 7)


def test_what_a_worker_has_begun_with_is_given_up_when_it_is_copied_instead(pids: list[int]) -> None:
    """Something has changed since."""
    shelf = SnapshotStore()
    shelf.add(pids[1], 0, 7, socket.socketpair()[0])
    assert not shelf.add_beginning(pids[0], 0, 7)
    shelf.clear()
    assert not shelf.add_beginning(pids[0], 0, 7)


def test_what_a_worker_has_begun_with_is_not_kept_where_nothing_is(pids: list[int]) -> None:
    assert not SnapshotStore(0).add_beginning(pids[0], 0, 7)


def test_nothing_is_gained_by_giving_up_what_a_worker_has_begun_with(pids: list[int]) -> None:
    """No page of the worker is duplicated for it, and all later bindings depend on it."""
    shelf = SnapshotStore()
    assert shelf.add_beginning(pids[0], 0, 7)
    assert shelf.bind(BEGINNING, 1, LATER, 7, BINDINGS)
    assert shelf.spare_copy is None
    assert not shelf.forgo()
    assert [0, 1] == steps(shelf)


@pytest.mark.parametrize("how", ["its end was heard of", "it did not wake"])
def test_who_loses_a_copy_falls_back_to_the_state_before_it(pids: list[int], how: str) -> None:
    """If that state consists of the worker's start and its bindings, nothing can kill it."""
    shelf = SnapshotStore()
    assert shelf.add_beginning(pids[0], 0, 7)
    assert shelf.bind(BEGINNING, 1, LATER, 7, BINDINGS)
    shelf.add(pids[1], 2, 7, socket.socketpair()[0])
    if how == "it did not wake":
        assert shelf.base is not None
        shelf.give_up(shelf.base.copy)
    else:
        shelf.forget(pids[1])
    assert ([0, 1], shelf.find(1)) == (steps(shelf), shelf.base)


def test_at_the_beginning_no_copy_is_kept(pids: list[int]) -> None:
    """Nor with later bindings; from the first copy on there is one."""
    shelf = SnapshotStore()
    assert not shelf.is_at_beginning
    assert shelf.add_beginning(pids[0], 1, 7)
    assert shelf.is_at_beginning
    assert shelf.bind(BEGINNING, 2, LATER, 7, BINDINGS)
    assert shelf.is_at_beginning
    shelf.add(pids[1], 3, 7, socket.socketpair()[0])
    assert not shelf.is_at_beginning
