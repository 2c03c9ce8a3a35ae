"""The small parts of jobs: room in quotas, plain results, logs with a head and a tail."""

from __future__ import annotations

import inspect
import math
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from cenote.agent.events import Event, EventType
from cenote.gateway.jobs.ledger import Failure, TaskOutcome
from cenote.gateway.jobs.plain_json import MAX_VALUE, NotPlainError, as_json
from cenote.gateway.jobs.room import AT_LEAST, fits, room, tasks_on
from cenote.gateway.jobs.runner import NO_PLACE, NO_ROOM, _awaited
from cenote.gateway.jobs.task_log import HEAD, TAIL, TaskLogText
from cenote.gateway.quota import Quota
from cenote.jobs import Job, Jobs
from cenote_worker.job_rules import MAX_CONCURRENCY

NEED = {Quota.RUNTIMES: 1, Quota.MEMORY: 10}


@pytest.mark.parametrize(
    ("limits", "used", "running", "expected"),
    [
        ({}, {}, 0, MAX_CONCURRENCY),
        ({Quota.RUNTIMES: 8}, {}, 0, 6),
        ({Quota.RUNTIMES: 8}, {Quota.RUNTIMES: 5}, 3, 1),
        ({Quota.RUNTIMES: 8}, {Quota.RUNTIMES: 6}, 3, 0),
        ({Quota.RUNTIMES: 8}, {Quota.RUNTIMES: 7}, 0, 1),
        ({Quota.RUNTIMES: 8}, {Quota.RUNTIMES: 8}, 0, 0),
        ({Quota.RUNTIMES: 1}, {}, 0, 1),
        ({Quota.RUNTIMES: 8, Quota.MEMORY: 40}, {Quota.MEMORY: 10}, 1, 2),
    ],
)
def test_a_quarter_of_each_quota_is_left(
    limits: dict[Quota, int], used: dict[Quota, int], running: int, expected: int
) -> None:
    """But for a job of which nothing runs, which may have the last of it: a small quota lets one task begin."""
    assert expected == room(limits, dict.fromkeys(Quota, 0) | used, NEED, running)


@pytest.mark.parametrize(
    ("processors", "tasks"), [(0, AT_LEAST), (2, AT_LEAST), (5, 20), (100, 400), (10_000, MAX_CONCURRENCY)]
)
def test_machines_have_room_by_their_processors(processors: int, tasks: int) -> None:
    """Four for each, never fewer than small machines have always had."""
    assert tasks == tasks_on(processors)


def test_no_more_begin_than_machines_have_room_for() -> None:
    """Whatever the quotas leave; what runs already stays, when a machine has gone."""
    none = dict.fromkeys(Quota, 0)
    assert 20 == room({}, none, NEED, 0, 20)
    assert 5 == room({}, none, NEED, 15, 20)
    assert 0 == room({}, none, NEED, 25, 20)
    assert 6 == room({Quota.RUNTIMES: 8}, none, NEED, 0, 20)


@pytest.mark.parametrize("face", [Job, Jobs])
def test_each_call_has_a_twin_that_is_awaited(face: type) -> None:
    """With the same arguments."""
    calls = {name: call for name, call in vars(face).items() if callable(call) and name[0] != "_"}
    plain = {name for name in calls if not name.startswith("async_")}
    assert {f"async_{name}" for name in plain} == set(calls) - plain
    for name in plain:
        one, two = (inspect.signature(calls[each]).parameters for each in (name, f"async_{name}"))
        assert one == two


def test_what_never_fits() -> None:
    """The quota is named; at the limit it fits."""
    assert Quota.MEMORY == fits({Quota.MEMORY: 9}, NEED)
    assert None is fits({Quota.MEMORY: 10}, NEED)


@pytest.mark.parametrize("value", [None, True, 3, 1.5, "é\u2028", [1, [2]], {"a": {"b": []}}])
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    """Through JSON."""
    import json

    assert value == json.loads(as_json(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(3), "3"),
        (np.float64(1.5), "1.5"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        ((1, ("a",)), '[1,["a"]]'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (OrderedDict(b=1, a=(np.uint8(2),)), '{"b":1,"a":[2]}'),
        (defaultdict(list, a=[1]), '{"a":[1]}'),
        (Counter([1, 1]), '{"1":2}'),
        ({np.int64(1): 1, False: 2, None: 3}, '{"1":1,"false":2,"null":3}'),
        ({date(2020, 1, 2): 1}, '{"2020-01-02":1}'),
        (deque([1]), "[1]"),
        (date(2020, 1, 2), '"2020-01-02"'),
        ([datetime(2020, 1, 2, 3, tzinfo=UTC), time(4, 5)], '["2020-01-02T03:00:00+00:00","04:05:00"]'),
        (pd.Timestamp("2020-01-02 03:04"), '"2020-01-02T03:04:00"'),
        (np.datetime64("2020-01-02"), '"2020-01-02"'),
        (np.datetime64("2020-01-02", "ns"), '"2020-01-02T00:00:00.000000000"'),
        (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
        (np.array(["2020-01-02"], dtype="M8[ns]"), '["2020-01-02T00:00:00.000000000"]'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ("half of \ud83d", '"half of \\ud83d"'),
    ],
    ids=str,
)
def test_what_json_writes_in_one_way_only(value: object, text: str) -> None:
    """What pandas and numpy give for a sum or a mean, and what has no other form."""
    assert text == as_json(value)


class Number(int):
    """Looks like one."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"a": {1}}], r"the result\[0\]\['a'\] is a set.*; use sorted"),
        ({(1, 2): 2}, "a key of the result is a tuple; use texts as keys"),
        ({1: 1, "1": 2}, "two keys of the result are '1' as texts"),
        ([math.nan], r"the result\[0\] is nan.*; use None"),
        (np.float64("inf"), "the result is inf"),
        (np.array([1.0, math.nan]), r"the result\[1\] is nan"),
        (np.timedelta64(3, "ns"), "the result is a timedelta64.*; use .item"),
        (np.datetime64("NaT"), "the result is a datetime64.*; use None"),
        (pd.NaT, "the result is a NaTType.*; use None"),
        (pd.DataFrame({"a": [1]}), "the result is a DataFrame.*; use .to_dict"),
        (timedelta(1), "the result is a timedelta.*; use .total_seconds"),
        (Number(1), "the result is a Number"),
        ([10**6000], r"the result\[0\] is a number of 19932 bits"),
        ("x" * MAX_VALUE, f"has {MAX_VALUE + 2} characters"),
    ],
)
def test_what_is_no_plain_data(value: object, said: str) -> None:
    """Where it is not, and why: nothing becomes something else on the way."""
    with pytest.raises(NotPlainError, match=said):
        as_json(value)


def test_nested_too_deeply() -> None:
    """Before it takes the stack of whoever looks at it."""
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(NotPlainError, match="levels deep"):
        as_json(deep)


def test_a_log_with_headings() -> None:
    """What a model says comes in pieces, under one."""
    log = TaskLogText()
    for kind, content in ((EventType.TEXT, "I "), (EventType.TEXT, "look."), (EventType.CODE, "x = 1")):
        log.hear(Event(kind, content))
    log.block("execution_output", "7\n")
    log.block("nothing", "")
    log.hear(Event(EventType.TEXT, "Done."))
    assert "--- text\nI look.\n--- code\nx = 1\n--- execution_output\n7\n--- text\nDone." == str(log)
    assert 0 == log.left_out


def test_a_log_that_is_too_long() -> None:
    """Head and tail are kept, and what is left out is counted."""
    log = TaskLogText()
    log.block("first", "a" * HEAD)
    log.block("second", "b" * TAIL)
    log.block("third", "c" * TAIL)
    text = str(log)
    assert text.startswith("--- first\naaa")
    assert text.endswith("ccc")
    assert f"{log.left_out} characters left out" in text
    assert HEAD + TAIL + log.left_out == sum(map(len, ("--- first\n", "\n--- second\n", "\n--- third\n"))) + (
        HEAD + 2 * TAIL
    )


def failure(kind: str) -> Failure:
    return Failure(type=kind, message="[Errno 5] oops", reason="platform", stage="platform")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (TaskOutcome(), NO_ROOM),
        (TaskOutcome(error=failure("QuotaExceededError")), NO_ROOM),
        (TaskOutcome(error=failure("UnavailableError")), NO_PLACE),
    ],
    ids=["nothing", "quota", "error"],
)
def test_what_a_job_waits_for_is_no_text_of_an_error(outcome: TaskOutcome, said: str) -> None:
    """`cenote job show` prints it as a state; the text is for the log."""
    assert said == _awaited(outcome)
