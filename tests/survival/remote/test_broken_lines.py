"""Connections that break in the middle of a call: it happens once, and its caller gets the result, or the reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import SmallPlatform
from tests.waiting import PATIENCE, until

from cenote.runtime import Function, PythonRuntime, Variable
from cenote.runtime.remote import reconnection, session
from cenote_security.errors import (
    OutcomeUnknownError,
    RuntimeLostError,
    UnavailableError,
    UnknownRuntimeError,
)

Connect = Callable[..., PythonRuntime]

COUNTING = """
import time
runs = globals().get("runs", 0) + 1
for n in range(60):
    print(n, flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection is given up after a moment."""
    monkeypatch.setattr(reconnection, "PATIENCE", 0.3)
    monkeypatch.setattr(session, "RetrySchedule", lambda _limit: reconnection.RetrySchedule(0.3))


class Reader:
    """An on_output that cuts the cable, once, when it has received a line."""

    def __init__(self, line: str, cut: Callable[[], None]) -> None:
        self.text = ""
        self._line = f"{line}\n"
        self._cut: Callable[[], None] | None = cut

    def __call__(self, _stream: str, text: str) -> None:
        self.text += text
        if self._cut is not None and self._line in self.text:
            cut, self._cut = self._cut, None
            cut()


@pytest.mark.slow
def test_a_cell_goes_on_and_its_output_too(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """Each line arrives once, in order; the cell ran once."""
    runtime = connect(own_platform)
    reader = Reader("5", cable.cut)
    result = runtime.execute(COUNTING, on_output=reader)
    assert "".join(f"{n}\n" for n in range(60)) == reader.text == result.stdout
    assert ("1", 2) == ((again := runtime.execute("runs")).value, again.step)


@pytest.mark.slow
def test_a_line_that_breaks_many_times(own_platform: SmallPlatform, cable: Cable, connect: Connect) -> None:
    """Each call is answered once, whatever was in transit."""
    runtime = connect(own_platform)
    runtime.execute("n = 0")
    for _ in range(5):
        cable.cut_after(150)
        assert runtime.execute("n += 1").success
    assert 5 == runtime.retrieve("n")


def test_a_rollback_is_answered_though_its_line_breaks(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """The connection breaks before the request arrives, or before the answer does."""
    runtime = connect(own_platform)
    runtime.execute("x = 1")
    runtime.snapshot("clean")
    runtime.execute("x = 2")
    for size, to in ((10, "clean"), (150, 2), (200, "clean")):
        cable.cut_after(size)
        assert {"clean": 1, 2: 2}[to] == runtime.rollback(to).step
    assert "1" == runtime.execute("x").value


def test_a_line_that_breaks_while_nobody_asks(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """The next call works as usual."""
    runtime = connect(own_platform)
    runtime.execute("x = 41")
    cable.cut()
    assert "42" == runtime.execute("x + 1").value


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 14, 1 << 22])
def test_values_arrive_whole(own_platform: SmallPlatform, cable: Cable, connect: Connect, size: int) -> None:
    """In both directions, also when the connection breaks in the middle of one."""
    runtime = connect(own_platform)
    value = np.arange(size)
    runtime.execute("0")
    cable.cut_after(value.nbytes // 2)
    runtime.inject(Variable("value", value))
    cable.cut_after(value.nbytes // 2)
    assert (value == runtime.retrieve("value")).all()


@pytest.mark.slow
def test_a_host_function_is_called_once(own_platform: SmallPlatform, cable: Cable, connect: Connect) -> None:
    """Its answer is sent again until it has arrived."""
    calls: list[int] = []

    def cutting(number: int) -> bytes:
        calls.append(number)
        cable.cut()
        return bytes(100_000)

    runtime = connect(own_platform, functions=[Function(cutting, host=True)])
    assert "300000" == runtime.execute("sum(len(cutting(n)) for n in range(3))").value
    assert [0, 1, 2] == calls


def test_an_answer_that_is_lost_on_its_way(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """A large answer of a host function starts anew on the next connection."""
    runtime = connect(own_platform, functions=[Function(lambda: bytes(8 << 20), name="large", host=True)])
    runtime.execute("0")
    cable.cut_after(4 << 20)
    assert str(8 << 20) == runtime.execute("len(large())").value


@pytest.mark.slow
def test_a_line_that_does_not_come_back(
    impatient: None, own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """What was sent may have run: the error contains the key, and later the outcome can be queried by it."""
    runtime = connect(own_platform)
    reader = Reader("5", cable.pull)
    with pytest.raises(OutcomeUnknownError) as caught:
        runtime.execute(COUNTING, on_output=reader)
    cable.plug()
    outcome = runtime.outcome(caught.value.key)
    assert outcome is not None
    assert (True, 1) == (outcome.success, outcome.step)
    assert "1" == runtime.execute("runs").value


def test_what_was_never_sent_did_not_run(
    impatient: None, own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """A call that was never sent may simply be repeated."""
    runtime = connect(own_platform)
    runtime.execute("n = 1")
    cable.pull()
    until(lambda: runtime.core.backend._session._line is None)
    with pytest.raises(UnavailableError):
        runtime.execute("n += 1")
    cable.plug()
    assert "1" == runtime.execute("n").value


def test_an_outcome_that_nobody_knows(platform: SmallPlatform, connect: Connect) -> None:
    """A key that no call had: nothing ran, and the error says so."""
    with pytest.raises(OutcomeUnknownError, match="nothing of that key"):
        connect(platform).outcome("made-up")


def test_the_server_moves(own_platform: SmallPlatform, connect: Connect) -> None:
    """The client asks the gateway for the new address; the namespace and this client's functions still exist."""
    runtime = connect(own_platform, functions=[Function(lambda: 7, name="seven", host=True)])
    runtime.execute("x = 35")
    before = own_platform.runtimes_address
    own_platform.move()
    assert before != own_platform.runtimes_address
    assert "42" == runtime.execute("x + seven()").value


def test_closing_when_the_platform_is_gone(own_platform: SmallPlatform, connect: Connect) -> None:
    """It takes only a moment, and raises nothing: there is no server to notify."""
    runtime = connect(own_platform)
    runtime.execute("1")
    own_platform.close()
    thread = threading.Thread(target=runtime.close)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_line_that_was_closed_is_no_broken_one(
    platform: SmallPlatform, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client makes no further try, which would delay the caller that closes the runtime."""
    tries: list[float] = []
    monkeypatch.setattr(reconnection.RetrySchedule, "broke", lambda _, now: tries.append(now))
    runtime = connect(platform)
    assert runtime.execute("x = 1").success
    runtime.close()
    assert [] == tries


def test_a_deleted_runtime(own_platform: SmallPlatform, connect: Connect) -> None:
    """Its client learns at once that it was deleted, and does not get the error for a wrong name."""
    runtime = connect(own_platform)
    started = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            runtime.execute("print('go')\nimport time\ntime.sleep(600)", on_output=lambda *_: started.set())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE)
    own_platform.delete_all()
    thread.join(PATIENCE)
    (error,) = errors
    assert isinstance(error, RuntimeLostError)
    assert "removed" in str(error)


def test_a_call_to_a_runtime_that_was_deleted(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """Sent before its client could learn of the deletion: nothing of it has begun, and the error says so."""
    runtime = connect(own_platform)
    runtime.execute("1")
    cable.silence()
    own_platform.delete_all()
    with ThreadPoolExecutor(1) as pool:
        cell = pool.submit(runtime.execute, "2")
        session = runtime.core.backend._session
        until(lambda: any(call.sent for call in session._calls.values()))
        cable.listen()
        assert isinstance(cell.exception(PATIENCE), UnknownRuntimeError)
