"""The timer between a worker and its warden."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.snapshots.protocol import FIRST_PULSE, PULSE_INTERVAL, pulse_timer, wake_warden
from cenote_worker.zygote.warden.snapshot_cost_monitor import COPY_SECONDS, LONGEST, ORDINARY, pause_after


@pytest.fixture
def timer() -> Iterator[int]:
    descriptor = libc.timerfd()
    yield descriptor
    os.close(descriptor)


def beats(timer: int, milliseconds: int) -> int:
    """The number of beats up to the first one."""
    poll = select.poll()
    poll.register(timer, select.POLLIN)
    return int.from_bytes(os.read(timer, 8), "little") if poll.poll(milliseconds) else 0


def test_whoever_rings_is_heard_at_once(timer: int) -> None:
    """It is heard once: what follows is not a long cell."""
    wake_warden(timer)
    assert 1 == beats(timer, 10_000)
    assert 0 == beats(timer, 20)


def test_where_no_copies_are_kept_nobody_is_there_to_hear() -> None:
    """Nor where a cell has closed the timer."""
    wake_warden(-1)
    closed = libc.timerfd()
    os.close(closed)
    wake_warden(closed)


def test_a_long_cell_is_told_of_until_it_ends(timer: int) -> None:
    """Reported repeatedly while it runs, and not afterwards."""
    with pulse_timer(timer):
        assert beats(timer, 10_000) >= 1
        assert beats(timer, 10_000) >= 1
    assert 0 == beats(timer, 20)


def test_no_beat_comes_while_nothing_can_be_decided() -> None:
    """In the time before the first one, as many pages can be copied as are written around any cell."""
    assert FIRST_PULSE / 1e9 == ORDINARY * COPY_SECONDS


def test_a_warden_pauses_only_if_it_misses_a_beat() -> None:
    """A shorter pause would wake it once more than the timer does."""
    interval = PULSE_INTERVAL / 1e9
    assert 0 == pause_after(8 * interval, shares=True)
    assert interval < pause_after(9 * interval, shares=True) < 2 * interval
    assert LONGEST == pause_after(100, shares=True) == pause_after(0, shares=False)
