"""Calls that a jail makes faster than they are carried out, and cancels: their remains are bounded."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
from tests.waiting import PATIENCE, until

from cenote.runtime.inject import host_turns
from cenote.runtime.inject.host_function_server import ARGUMENTS, SMALL, HostFunctionServer, HostResult
from cenote_security.values.encoder import encode
from cenote_worker.execution.results import HostFailure
from cenote_worker.supervisor.channels.host_calls import HostCall
from cenote_worker.transport.content import Content

LIMIT = 20


class Call(HostCall):
    """A call that can be observed."""

    __slots__ = ("__weakref__",)


class Caller:
    """A jail, as the host call desk sees it."""

    def __init__(self, desk: HostFunctionServer) -> None:
        self.desk = desk
        self.number = 0
        self.answers: dict[int, HostResult] = {}

    def call(self) -> weakref.ref[HostCall]:
        self.number += 1
        number, encoded = self.number, encode([[], {}])
        call = Call(number, "f", "", Content.pack([encoded.header, encoded.pieces]), None, 0)
        self.desk.call(call, None, lambda result: self.answers.update({number: result}))
        return weakref.ref(call)

    def call_and_cancel(self) -> weakref.ref[HostCall]:
        made = self.call()
        self.desk.cancel(self.number)
        return made

    @property
    def refused(self) -> bool:
        answer = self.answers.get(self.number)
        return isinstance(answer, HostFailure) and "wait for their turn" in answer.message


@pytest.fixture(params=["plain", "async"])
def busy(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Caller, Callable[[], None]]]:
    """A caller whose functions get no thread, or no loop with time for them; and the function that makes room."""
    monkeypatch.setattr(host_turns, "MAX_WAITING", LIMIT)
    free, loop = threading.Event(), asyncio.new_event_loop()

    async def other() -> None: ...

    desk = HostFunctionServer({("f", ""): free.wait if request.param == "plain" else other}, {})
    if request.param == "plain":
        caller = Caller(desk)
        for _ in range(host_turns.THREADS):
            caller.call()
        until(lambda: desk._turns._waiting == 0)
    else:
        threading.Thread(target=loop.run_forever, daemon=True).start()
        desk.loop = loop
        loop.call_soon_threadsafe(free.wait)
        until(loop.is_running)
        caller = Caller(desk)

    def release() -> None:
        free.set()
        until(lambda: desk._turns._waiting == 0)

    yield caller, release
    free.set()
    loop.call_soon_threadsafe(loop.stop)
    desk.close()


def test_calls_that_are_taken_back_leave_little_and_not_for_ever(
    busy: tuple[Caller, Callable[[], None]],
) -> None:
    """At the limit a call is accepted, one past it refused, however many were cancelled; turns make room."""
    caller, release = busy
    for _ in range(LIMIT):
        caller.call_and_cancel()
        assert not caller.refused
    caller.call()
    assert caller.refused
    release()
    caller.call()
    until(lambda: caller.number in caller.answers)
    assert not caller.refused


def test_what_a_cancelled_call_carried_is_given_back_at_once() -> None:
    """Its turn may come in an hour: until then the arguments would stay in memory."""
    free = threading.Event()
    desk = HostFunctionServer({("f", ""): free.wait}, {})
    caller = Caller(desk)
    for _ in range(host_turns.THREADS):
        caller.call()
    cancelled = caller.call_and_cancel()
    until(lambda: cancelled() is None)
    free.set()
    desk.close()


def test_an_answer_that_cannot_be_sent_is_an_answer_still(caplog: pytest.LogCaptureFixture) -> None:
    """For any fault: a cell without an answer waits forever."""
    heard: list[HostResult] = []

    def answer(result: HostResult) -> None:
        if not isinstance(result, HostFailure):
            raise ValueError("no message can hold this")
        heard.append(result)

    desk, encoded = HostFunctionServer({("f", ""): lambda: 1}, {}), encode([[], {}])
    call = HostCall(1, "f", "", Content.pack([encoded.header, encoded.pieces]), None, 0)
    desk.call(call, None, answer)
    until(lambda: heard)
    assert [HostFailure("RuntimeError", "the answer of f could not be sent")] == heard
    until(lambda: "no message can hold this" in caplog.text)  # it is our fault, and is in the log


DEAR = ARGUMENTS.header_bytes // 2 - 2**16
"""Bytes of the arguments of a call: half of what may be rebuilt concurrently."""


class DearCaller(Caller):
    """size: of the encoded arguments."""

    def __init__(self, desk: HostFunctionServer, size: int) -> None:
        super().__init__(desk)
        self._arguments = Content.pack([b" " * size + encode([[], {}]).header, encode([[], {}]).pieces])

    def call(self) -> weakref.ref[HostCall]:
        self.number += 1
        number = self.number
        call = Call(number, "f", "", self._arguments.duplicate(), None, 0)
        self.desk.call(call, None, lambda result: self.answers.update({number: result}))
        return weakref.ref(call)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_dear_arguments_are_bounded_together(kind: str) -> None:
    """A limited amount is rebuilt at once; others wait in order, small ones pass. Cancelled calls release theirs."""
    free, running, most, lock = threading.Event(), [0], [0], threading.Lock()

    def enter() -> None:
        with lock:
            running[0] += 1
            most[0] = max(running[0], most[0])

    def plain() -> None:
        enter()
        free.wait(PATIENCE)
        with lock:
            running[0] -= 1

    async def later() -> None:
        enter()
        await asyncio.to_thread(free.wait, PATIENCE)
        with lock:
            running[0] -= 1

    desk = HostFunctionServer({("f", ""): plain if kind == "plain" else later}, {})
    dear, small = DearCaller(desk, DEAR), DearCaller(desk, SMALL // 2)
    for _ in range(12):
        dear.call()
    until(lambda: running[0] == 2)
    dear.desk.cancel(12)
    assert isinstance(dear.answers[12], HostFailure)
    small.number = 100
    small.call()
    until(lambda: running[0] == 3)
    free.set()
    until(lambda: len(dear.answers) == 12 and len(small.answers) == 1)
    assert most[0] == 3
    assert 11 == sum(not isinstance(answer, HostFailure) for answer in dear.answers.values())
    free.clear()
    for _ in range(4):
        dear.call()
    until(lambda: running[0] == 2)
    desk.ended()
    until(lambda: len(dear.answers) >= 14)
    free.set()
    until(lambda: len(dear.answers) == 16 and desk._rebuilt == 0)
    desk.close()
