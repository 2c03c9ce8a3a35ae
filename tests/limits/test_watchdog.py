"""When the watchdog looks, and that looking at one jail never stops it from looking at the others."""

from __future__ import annotations

import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_worker.supervisor.tree_account import IDLE, LONGEST, SHARE, SHORTEST, pause
from cenote_worker.supervisor.watchdog import Watchdog

ROOM = st.integers(-(2**40), 2**40)


@settings(max_examples=200)
@given(ROOM, st.floats(0, 10))
def test_looking_costs_a_bounded_share(room: int, took: float) -> None:
    """However many processes a jail has, so that looking at it is slow."""
    assert pause(room, took, idle=False) >= max(SHORTEST, SHARE * took)


@settings(max_examples=200)
@given(ROOM, ROOM)
def test_the_nearer_the_limit_the_sooner(one: int, other: int) -> None:
    near, far = sorted((one, other))
    assert pause(near, 0, idle=False) <= pause(far, 0, idle=False) <= LONGEST


def test_an_idle_jail_is_looked_at_too() -> None:
    """What a cell left in the background may still grow."""
    assert IDLE == pause(0, 0, idle=True)


class Counted:
    """Wants to be looked at always."""

    def __init__(self, fails: bool) -> None:
        self.due = 0.0
        self.fails = fails
        self.enough = threading.Event()

    def look(self) -> None:
        self.enough.set()
        self.due = time.monotonic() + 60
        if self.fails:
            raise RuntimeError("a look that fails")


def test_a_failure_stops_nobody_else() -> None:
    """It is logged, and the next one has its turn."""
    watchdog = Watchdog()
    first = Counted(fails=True)
    watchdog.add(first)
    assert first.enough.wait(20)
    second = Counted(fails=False)
    watchdog.add(second)
    assert second.enough.wait(20)
    watchdog.remove(first)
    watchdog.remove(second)
