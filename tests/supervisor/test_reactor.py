"""The thread that waits for all jails of a process."""

from __future__ import annotations

import math
import os
import threading
import time

import pytest

from cenote_worker.supervisor.reactor import Reactor

FOREVER = 30.0
"""Seconds. Only a broken reactor lets a test wait so long."""


@pytest.mark.parametrize("seconds", [3e7, 1e300, math.inf])
def test_a_time_far_away_stops_nothing(seconds: float) -> None:
    """epoll refuses to wait for a month at once; everybody else's events go on."""
    reactor, answered = Reactor(), threading.Event()
    reactor.call_at(time.monotonic() + seconds, lambda: None)
    reactor.call_soon(lambda: reactor.call_soon(answered.set))
    assert answered.wait(FOREVER)


def test_timers_fire_in_order_and_not_when_cancelled() -> None:
    """The earlier first, whatever the order of asking."""
    reactor, done, heard = Reactor(), threading.Event(), list[str]()
    now = time.monotonic()
    reactor.call_at(now + 0.04, done.set)
    reactor.call_at(now + 0.02, lambda: heard.append("second"))
    reactor.call_at(now + 0.03, lambda: heard.append("never")).cancel()
    reactor.call_at(now + 0.01, lambda: heard.append("first"))
    assert done.wait(FOREVER)
    assert ["first", "second"] == heard


def test_a_callback_that_fails_stops_nothing() -> None:
    """One jail's failure is logged; the others are read as before."""
    reactor, answered = Reactor(), threading.Event()
    reactor.call_soon(lambda: 1 // 0)
    reactor.call_soon(answered.set)
    assert answered.wait(FOREVER)


def test_watching_ends() -> None:
    """A descriptor is called for while it is watched, and unknown ones may be unwatched."""
    reactor, heard = Reactor(), threading.Event()
    reader, writer = os.pipe()

    def hear() -> None:
        os.read(reader, 10)
        reactor.unwatch(reader)
        reactor.unwatch(reader)
        heard.set()

    reactor.call_soon(lambda: reactor.watch(reader, hear))
    os.write(writer, b"x")
    assert heard.wait(FOREVER)
    os.close(reader)
    os.close(writer)


def test_a_socket_that_was_closed_may_be_unwatched() -> None:
    """Its descriptor is -1 then: its jail ended by another event of the same turn."""
    reactor, unwatched = Reactor(), threading.Event()

    def unwatch() -> None:
        reactor.unwatch(-1)
        unwatched.set()

    reactor.call_soon(unwatch)
    assert unwatched.wait(FOREVER)
