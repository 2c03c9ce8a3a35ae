"""Copies that are needed stay, however many are made meanwhile."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from cenote_worker.supervisor.channels.warden import SnapshotPins
from cenote_worker.zygote.warden.snapshot_store import MORE, SnapshotStore

MOST = 4

Add = Callable[..., None]


@pytest.fixture
def shelf() -> SnapshotStore:
    return SnapshotStore(MOST)


@pytest.fixture
def add(shelf: SnapshotStore) -> Iterator[Add]:
    """Puts copies on the shelf, of processes that do nothing."""
    pids: list[int] = []

    def added(*steps: int) -> None:
        for step in steps:
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            pids.append(pid)
            shelf.add(pid, step, 0, socket.socketpair()[0])

    yield added
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def steps(shelf: SnapshotStore) -> set[object]:
    return {one["step"] for one in shelf.told()}


@pytest.mark.slow
def test_what_is_held_by_number_or_label_is_not_thinned_away(shelf: SnapshotStore, add: Add) -> None:
    """Without that both would go: a hundred steps later nobody keeps two neighbours."""
    add(0, 1, 2, 3)
    shelf.name(2, "here")
    shelf.hold([1, "here"])
    add(*range(4, 30))
    assert {1, 2, 29} <= steps(shelf)
    assert MOST + MORE == len(steps(shelf))


@pytest.mark.slow
def test_what_is_held_no_more_goes_with_the_next_copy(shelf: SnapshotStore, add: Add) -> None:
    """And so does what there was room for only meanwhile."""
    add(0, 1, 2, 3)
    shelf.hold([1, 2])
    add(*range(4, 30))
    shelf.hold([])
    add(30)
    assert MOST == len(steps(shelf))
    assert not {1, 2} <= steps(shelf)


@pytest.mark.slow
def test_even_if_everything_is_held_the_newest_is_kept(shelf: SnapshotStore, add: Add) -> None:
    """It is what a crash falls back to; nothing grows beyond one more than what is held."""
    held = range(MOST + MORE)
    shelf.hold(held)
    add(*held, 100, 101, 102)
    assert {*held, 102} == steps(shelf)


def test_a_cell_that_pays_too_much_does_not_take_what_is_held(shelf: SnapshotStore, add: Add) -> None:
    """Want of memory does."""
    shelf.hold([1])
    add(0, 1, 2)
    shelf.clear()
    assert {1} == steps(shelf)
    add(3)
    shelf.keep_base()
    assert {3} == steps(shelf)


def test_several_hold_at_once() -> None:
    """What is said is what any of them needs; letting go twice does nothing."""
    said: list[set[int | str]] = []
    holds = SnapshotPins(lambda targets: said.append(set(targets)))
    one, other = holds.add([1, 2]), holds.add([2, "here"])
    holds.let_go(one)
    holds.let_go(one)
    holds.let_go(other)
    assert [{1, 2}, {1, 2, "here"}, {2, "here"}, set()] == said
