"""The thread that waits for all jails of a process."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref

import pytest
from tests.waiting import until

from cenote_worker.process.log_context import log_context, logged_about
from cenote_worker.supervisor import reactor as reactor_module
from cenote_worker.supervisor.reactor import FEW_TIMERS, Reactor

FOREVER = 30.0
"""Seconds. Only a broken reactor lets a test wait so long."""


@pytest.mark.parametrize("seconds", [3e7, 1e300, math.inf])
def test_a_time_far_away_stops_nothing(seconds: float) -> None:
    """epoll refuses to wait for a month at once; other events are still handled."""
    reactor, answered = Reactor(), threading.Event()
    reactor.call_at(time.monotonic() + seconds, lambda: None)
    reactor.call_soon(lambda: reactor.call_soon(answered.set))
    assert answered.wait(FOREVER)


def test_timers_fire_in_order_and_not_when_cancelled() -> None:
    """The earlier first, in whichever order they were set."""
    reactor, done, heard = Reactor(), threading.Event(), list[str]()
    now = time.monotonic()
    reactor.call_at(now + 0.04, done.set)
    reactor.call_at(now + 0.02, lambda: heard.append("second"))
    reactor.call_at(now + 0.03, lambda: heard.append("never")).cancel()
    reactor.call_at(now + 0.01, lambda: heard.append("first"))
    assert done.wait(FOREVER)
    assert ["first", "second"] == heard


def test_lines_of_the_log_are_about_the_runtime_that_is_called_back_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the context of the caller: soon, at a time, and whenever a descriptor can be read."""
    reactor, about, event = Reactor(), list[dict[str, str]](), os.eventfd(1)

    def heard(_: logging.LogRecord) -> bool:
        about.append(logged_about())
        return True

    def fail() -> None:
        raise ValueError("of this test")

    def fail_once() -> None:
        reactor.unwatch(event)
        os.close(event)
        fail()

    caplog.handler.addFilter(heard)
    try:
        with log_context(runtime="rt_1", step=lambda: 7):
            reactor.call_soon(fail)
            reactor.call_at(time.monotonic(), fail)
            reactor.call_soon(lambda: reactor.watch(event, fail_once))
        until(lambda: len(about) == 3)
        assert 3 * [{"runtime": "rt_1", "step": "7"}] == about
        assert {"a callback failed"} == {record.getMessage() for record in caplog.records}
    finally:
        caplog.handler.removeFilter(heard)


def test_cancelled_timers_do_not_stay_until_their_time() -> None:
    """Each cell has one, an hour or a year ahead; timers that were not cancelled remain, in order."""
    reactor, looked, heard = Reactor(), threading.Event(), list[str]()
    far, done = time.monotonic() + 1e9, threading.Event()
    for _ in range(5 * FEW_TIMERS):
        reactor.call_at(far, lambda: None).cancel()
    reactor.call_at(time.monotonic() + 0.02, done.set)
    reactor.call_at(time.monotonic() + 0.01, lambda: heard.append("first"))
    for _ in range(5 * FEW_TIMERS):
        reactor.call_at(far, lambda: None).cancel()
    reactor.call_soon(looked.set)
    assert looked.wait(FOREVER)
    assert done.wait(FOREVER)
    assert ["first"] == heard
    assert len(reactor._timers) <= FEW_TIMERS


def test_behind_a_standstill_others_come_before_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still keeps jails from answering: an answer that waits when it continues is in time."""
    monkeypatch.setattr(reactor_module, "STANDSTILL", 0.1)
    reactor, heard, read = Reactor(), list[str](), threading.Event()
    reader, writer = os.pipe()

    def hear() -> None:
        os.read(reader, 10)
        heard.append("answer")
        read.set()

    def stand_still() -> None:
        reactor.watch(reader, hear)
        reactor.call_at(time.monotonic(), lambda: heard.append("time"))
        reactor.call_soon(go_on)

    def go_on() -> None:
        threading.Event().wait(0.3)  # nothing runs
        reactor.call_soon(lambda: reactor.call_soon(lambda: os.write(writer, b"x")))

    reactor.call_soon(stand_still)
    assert read.wait(FOREVER)
    until(lambda: ["answer", "time"] == heard)
    reactor.call_soon(lambda: reactor.unwatch(reader))
    _settled(reactor)
    os.close(reader)
    os.close(writer)


def test_no_time_is_put_off_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the reactor is late for all of them, each still fires."""
    monkeypatch.setattr(reactor_module, "STANDSTILL", -1.0)
    monkeypatch.setattr(reactor_module, "CATCH_UP", 0.01)
    reactor, come = Reactor(), threading.Semaphore(0)
    for number in range(10):
        reactor.call_at(time.monotonic() + number / 1000, come.release)
    assert all(come.acquire(timeout=FOREVER) for _ in range(10))


def test_a_callback_that_fails_stops_nothing() -> None:
    """One jail's failure is logged; the others are read as before."""
    reactor, answered = Reactor(), threading.Event()
    reactor.call_soon(lambda: 1 // 0)
    reactor.call_soon(answered.set)
    assert answered.wait(FOREVER)


def test_watching_ends() -> None:
    """A descriptor's callback runs while it is watched, and unknown descriptors may be unwatched."""
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
    """Its descriptor is -1 then: another event of the same turn ended its jail."""
    reactor, unwatched = Reactor(), threading.Event()

    def unwatch() -> None:
        reactor.unwatch(-1)
        unwatched.set()

    reactor.call_soon(unwatch)
    assert unwatched.wait(FOREVER)


class _Reader:
    """One end of a pipe, and a reactor that reads it until its first event."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.end, self.other = os.pipe()
        reactor.watch(self.end, self.heard)

    def heard(self) -> None:
        self.reactor.unwatch(self.end)
        os.close(self.end)


class _Alarm:
    def rings(self) -> None: ...


def test_what_was_called_last_is_held_no_longer() -> None:
    """A reactor may wait for a minute; the record of a closed runtime is large."""
    reactor = Reactor()
    reader, alarm = _Reader(reactor), _Alarm()
    reactor.call_at(time.monotonic(), alarm.rings)
    reads, rings, other = weakref.ref(reader), weakref.ref(alarm), reader.other
    del reader, alarm
    os.write(other, b"x")
    until(lambda: reads() is None and rings() is None)
    os.close(other)


class _Counting(Reactor):
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0
        super().__init__()

    def _woken(self) -> None:
        self.woken += 1
        super()._woken()


def _settled(reactor: Reactor) -> None:
    """Waits until all earlier calls are handled, and the reactor sleeps again."""
    for _ in range(2):
        looked = threading.Event()
        reactor.call_soon(looked.set)
        assert looked.wait(FOREVER)
    until(lambda: reactor._sleeps_until > 0)


def test_nobody_is_woken_for_times_that_do_not_come() -> None:
    """Each small cell sets one, later than the one before, and ends long before that."""
    reactor = _Counting()
    reactor.call_at(time.monotonic() + FOREVER, lambda: None).cancel()
    _settled(reactor)
    before = reactor.woken
    for _ in range(100):
        reactor.call_at(time.monotonic() + 2 * FOREVER, lambda: None).cancel()
    _settled(reactor)
    assert reactor.woken - before <= 2  # by `_settled`


def test_an_earlier_time_ends_a_long_wait() -> None:
    """However long the present wait is, for a timer that is set or cancelled."""
    reactor, answered = Reactor(), threading.Event()
    reactor.call_at(time.monotonic() + FOREVER, lambda: None)
    reactor.call_at(time.monotonic() + FOREVER / 2, lambda: None).cancel()
    _settled(reactor)
    reactor.call_at(time.monotonic(), answered.set)
    assert answered.wait(FOREVER / 4)


def test_no_time_is_missed_whoever_asks_while_the_reactor_goes_to_sleep() -> None:
    """From several threads at once, with times that are cancelled among them."""
    reactor, come = Reactor(), threading.Semaphore(0)

    def ask() -> None:
        for number in range(300):
            at = time.monotonic() + (number % 5) / 1000
            reactor.call_at(at, come.release)
            reactor.call_at(at, come.release).cancel()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(come.acquire(timeout=FOREVER) for _ in range(900))
