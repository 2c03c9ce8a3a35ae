"""Copies in use stay, however many others are made."""

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
    """Adds copies to the snapshot store, made of idle processes."""
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
    """Without the hold both would go: a hundred steps later no two neighbours remain."""
    add(0, 1, 2, 3)
    shelf.name(2, "here")
    shelf.hold([1, "here"])
    add(*range(4, 30))
    assert {1, 2, 29} <= steps(shelf)
    assert MOST + MORE == len(steps(shelf))


@pytest.mark.slow
def test_what_is_held_no_more_goes_with_the_next_copy(shelf: SnapshotStore, add: Add) -> None:
    """And so do the copies that fitted only temporarily."""
    add(0, 1, 2, 3)
    shelf.hold([1, 2])
    add(*range(4, 30))
    shelf.hold([])
    add(30)
    assert MOST == len(steps(shelf))
    assert not {1, 2} <= steps(shelf)


@pytest.mark.slow
def test_even_if_everything_is_held_the_newest_is_kept(shelf: SnapshotStore, add: Add) -> None:
    """A crash falls back to it; at most one copy more than the held ones exists."""
    held = range(MOST + MORE)
    shelf.hold(held)
    add(*held, 100, 101, 102)
    assert {*held, 102} == steps(shelf)


def test_a_cell_that_pays_too_much_does_not_take_what_is_held(shelf: SnapshotStore, add: Add) -> None:
    """A shortage of memory does."""
    shelf.hold([1])
    add(0, 1, 2)
    shelf.clear()
    assert {1} == steps(shelf)
    add(3)
    shelf.keep_base()
    assert {3} == steps(shelf)


def test_several_hold_at_once() -> None:
    """The reported steps are those that any holder needs; releasing twice does nothing."""
    said: list[set[int | str]] = []
    holds = SnapshotPins(lambda targets: said.append(set(targets)))
    one, other = holds.add([1, 2]), holds.add([2, "here"])
    holds.let_go(one)
    holds.let_go(one)
    holds.let_go(other)
    assert [{1, 2}, {1, 2, "here"}, {2, "here"}, set()] == said
