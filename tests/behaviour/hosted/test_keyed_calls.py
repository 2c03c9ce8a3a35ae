"""A request that is sent again under its key is carried out once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import until

from cenote_security.errors import (
    OutcomeUnknownError,
    RejectedError,
    RuntimeClosedError,
    UnavailableError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ErrorInfo, ExecutionResult
from cenote_worker.execution.trace import StepTrace
from cenote_worker.history.bounds import MAX_TOLD
from cenote_worker.history.step import StepRecord
from cenote_worker.record.journal_replay import MAX_KEYS, MAX_OUTCOMES
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.keyed_requests import MAX_KEY, KeyedCalls, RequestKey
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.frame_parser import DoneReply, RefusedReply
from cenote_worker.transport.content import Content

POLICY = SandboxPolicy(preload=(), output=100_000)
UNTIL_INTERRUPTED = "import time\nprint('begun')\nwhile True: time.sleep(1)"
UNTIL_TOLD = """
import time
try:
    print('begun')
    time.sleep(60)
except KeyboardInterrupt:
    print('ended')
"""


@pytest.fixture(scope="module")
def runtime() -> Iterator[HostedRuntime]:
    hosted = HostedRuntime(POLICY, NoHosts(), name="kept")
    yield hosted
    hosted.close()


def execute(runtime: HostedRuntime, code: str, key: str, heard: int = 0) -> Heard:
    listener = Heard()
    runtime.execute(code, None, listener, RequestKey(text=key, heard=heard, missed=listener.missed))
    return listener


def value(runtime: HostedRuntime, expression: str) -> str | None:
    listener = Heard()
    runtime.execute(expression, None, listener)
    return listener.result().value


def test_a_repeated_cell_gets_the_first_result(runtime: HostedRuntime) -> None:
    """The code of a known key is ignored: its result and its output are those of the first time."""
    execute(runtime, "count = 0", "count").result()
    first = execute(runtime, "print('once')\ncount += 1\ncount", "add")
    result = first.result()
    again = execute(runtime, "1 / 0", "add")
    assert result == again.result()
    assert ("1", "once\n") == (result.value, again.printed)
    assert "1" == value(runtime, "count")


def test_a_repeated_cell_joins_the_one_that_runs(runtime: HostedRuntime) -> None:
    """A client that joins gets the output that it has missed, then the rest, and the same result."""
    first = execute(runtime, UNTIL_TOLD, "join")
    first.wait_for("begun")
    second = execute(runtime, "", "join", heard=3)
    assert "un\n" == second.printed
    assert runtime.interrupt()
    result = first.result()
    assert (None, result) == (result.error, second.result())
    assert ("begun\nended\n", "un\nended\n") == (first.printed, second.printed)


@pytest.mark.usefixtures("patient")
def test_who_left_hears_no_more(runtime: HostedRuntime) -> None:
    """The call continues without its listener, and can be joined again."""
    first = execute(runtime, UNTIL_INTERRUPTED, "leave")
    first.wait_for("begun")
    runtime.leave("leave", first)
    second = execute(runtime, "", "leave", heard=6)
    assert runtime.interrupt()
    assert "interrupt" == getattr(second.result().error, "reason", None)
    assert first.silent
    runtime.leave("leave", first)


def test_output_that_is_not_kept_is_counted(runtime: HostedRuntime) -> None:
    """A cell's transcript is bounded; a late client is informed of how much is missing."""
    execute(runtime, "for _ in range(30): print('x' * 9_999)", "flood").result()
    late = execute(runtime, "", "flood")
    late.result()
    assert 300_000 == late.missing + len(late.printed)
    assert 100_000 <= len(late.printed) < 150_000


def test_other_changes_are_carried_out_once_too(runtime: HostedRuntime) -> None:
    """Injections and removals under a known key get the first outcome; the content of a repetition is closed."""
    first, second = Heard(), Heard()
    inject = partial(runtime.inject, replace=False, key=RequestKey(text="inject"))
    inject(parcel(gift=1), first)
    inject(spare := parcel(gift=2), second)
    assert (DoneReply(), DoneReply()) == (first.outcome(), second.outcome())
    assert spare.values.memory is not None
    with pytest.raises(ValueError, match="closed"):
        spare.values.memory.fileno()
    assert "1" == value(runtime, "gift[0]")
    for _ in range(2):
        runtime.delete("gift", deleted := Heard(), RequestKey(text="delete"))
        assert DoneReply() == deleted.outcome()
    runtime.delete("gift", refused := Heard(), RequestKey(text="delete again"))
    assert isinstance(refused.outcome(), RefusedReply)


def parcel(*, gift: int) -> Injection:
    """Large enough to travel in sealed memory."""
    pickled = pickle.dumps(({"gift": [gift, bytes(100_000)]}, {}))
    return Injection(values=Content.pack([pickled]), names=("gift",))


def test_what_was_withdrawn_before_it_ran_may_be_sent_again(runtime: HostedRuntime) -> None:
    """Nothing ran, so its key is free."""
    running = execute(runtime, UNTIL_INTERRUPTED, "in front")
    running.wait_for("begun")
    waiting = Heard()
    withdraw = runtime.execute("late = 1", None, waiting, RequestKey(text="late"))
    assert withdraw is not None
    withdraw()
    assert isinstance(waiting.outcome(), UnavailableError)
    runtime.interrupt()
    running.result()
    assert "2" == execute(runtime, "2", "late").result().value


@pytest.mark.usefixtures("patient")
def test_withdrawing_a_cell_that_runs_interrupts_it(runtime: HostedRuntime) -> None:
    """And its outcome is stored: it ran."""
    listener = Heard()
    withdraw = runtime.execute(UNTIL_INTERRUPTED, None, listener, RequestKey(text="stop"))
    listener.wait_for("begun")
    assert withdraw is not None
    withdraw()
    result = listener.result()
    assert result == execute(runtime, "", "stop").result()
    assert "interrupt" == getattr(result.error, "reason", None)


def test_a_jail_that_a_cell_took_along_is_its_outcome() -> None:
    """The result of a cell that killed its jail is stored like any other."""
    hosted = HostedRuntime(replace(POLICY, snapshots="none"), NoHosts(), name="short")
    try:
        lost = execute(hosted, "import os; os._exit(3)", "end").result()
        assert ("lost", lost) == (lost.state, execute(hosted, "", "end").result())
        assert "1" == execute(hosted, "1", "next").result().value
    finally:
        hosted.close()


@pytest.mark.parametrize("text", ["", "k" * (MAX_KEY + 1)])
def test_keys_are_bounded(text: str) -> None:
    """An empty or an overlong key is refused."""
    with pytest.raises(UsageError, match="key"):
        RequestKey(text=text)
    assert MAX_KEY == len(RequestKey(text="k" * MAX_KEY).text)


def test_outcomes_are_forgotten_before_their_keys() -> None:
    """A repetition that comes much too late is refused, not carried out; one past all bounds counts as new."""
    calls = KeyedCalls("kept", 1000)
    for number in range(MAX_OUTCOMES + MAX_KEYS + 1):
        call, fresh = calls.claim(f"k{number}")
        assert fresh
        call.done(ExecutionResult(success=True, step=number))
    newest = MAX_OUTCOMES + MAX_KEYS
    assert not calls.claim(f"k{newest - MAX_OUTCOMES + 1}")[1]
    with pytest.raises(OutcomeUnknownError, match=f"step {newest - MAX_OUTCOMES}"):
        calls.claim(f"k{newest - MAX_OUTCOMES}")
    with pytest.raises(OutcomeUnknownError, match="step 1,"):
        calls.claim("k1")
    assert calls.claim("k0")[1]


@pytest.mark.parametrize(
    "large",
    [
        {"stdout": "x" * 1000},
        {"error": ErrorInfo(type="E", message="x" * 500, traceback="x" * 500)},
        {"trace": StepTrace(opaque=("x" * 850,))},
    ],
    ids=lambda large: str(*large),
)
def test_large_outcomes_are_forgotten_first(large: dict[str, Any]) -> None:
    """All outcomes together take four times the limit of one cell's output, whichever of their fields is large."""
    calls = KeyedCalls("kept", 1000)
    for number in range(5):
        calls.claim(f"k{number}")[0].done(ExecutionResult(success=True, **large))
    with pytest.raises(OutcomeUnknownError):
        calls.claim("k0")
    assert not calls.claim("k1")[1]


def test_a_cell_that_the_history_has_no_room_for_is_refused() -> None:
    """It has no number, and its key may be used again."""
    runtime, code = HostedRuntime(POLICY, NoHosts(), name="full"), "#" * 2**20
    for number in range(1, MAX_TOLD // len(code) + 1):
        runtime.history.ended(StepRecord(number=number, code=code))
    runtime.count_on(number, None)
    heard, key = Heard(), RequestKey(text="k")
    with pytest.raises(RejectedError):
        runtime.execute(code, None, heard, key)
    runtime.execute("6 * 7", None, heard, key)
    result = heard.result()
    assert ("42", number + 1) == (result.value, result.step)
    runtime.close()


def test_a_closed_runtime_refuses_a_cell() -> None:
    """Whether or not its jail is known to have ended by then."""
    hosted = HostedRuntime(POLICY, NoHosts(), name="closed")
    hosted.start()
    supervisor = hosted.supervisor
    hosted.close()
    assert supervisor is not None
    until(lambda: supervisor.death is not None)
    with pytest.raises(RuntimeClosedError):
        hosted.execute("1", None, Heard())
