"""The small parts of jobs: free quotas, logs with a head and a tail, variables of tasks."""

from __future__ import annotations

import datetime
import gzip
import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cenote.agent.vocabulary.events import Event, EventType
from cenote.gateway.jobs.attempt import HEAD, TAIL, TaskLogText
from cenote.gateway.jobs.ledger import TaskFailure, TaskOutcome
from cenote.gateway.jobs.rules import MAX_CONCURRENCY
from cenote.gateway.jobs.runner import NO_PLACE, NO_ROOM, _awaited
from cenote.gateway.jobs.schedule import AT_LEAST, fits, room, tasks_on
from cenote.gateway.values.quota import Quota
from cenote.jobs import Job, Jobs
from cenote.jobs.checks import BadTasksError, TaskCheck
from cenote.jobs.source import tasks_of
from cenote_security.errors import UsageError

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
    """Except for a job of which nothing runs, which may use the last of it: a small quota lets one task begin."""
    assert expected == room(limits, dict.fromkeys(Quota, 0) | used, NEED, running)


@pytest.mark.parametrize(
    ("processors", "tasks"), [(0, AT_LEAST), (2, AT_LEAST), (5, 20), (100, 400), (10_000, MAX_CONCURRENCY)]
)
def test_machines_have_room_by_their_processors(processors: int, tasks: int) -> None:
    """Four for each, never fewer than the minimum."""
    assert tasks == tasks_on(processors)


def test_no_more_begin_than_machines_have_room_for() -> None:
    """Whatever the quotas allow; running tasks continue when a machine leaves."""
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


def test_a_log_with_headings() -> None:
    """A model's output arrives in pieces, under one heading."""
    log = TaskLogText()
    for kind, content in ((EventType.TEXT, "I "), (EventType.TEXT, "look."), (EventType.CODE, "x = 1")):
        log.hear(Event(kind, content))
    log.block("execution_output", "7\n")
    log.block("nothing", "")
    log.hear(Event(EventType.TEXT, "Done."))
    assert "--- text\nI look.\n--- code\nx = 1\n--- execution_output\n7\n--- text\nDone." == str(log)
    assert 0 == log.left_out


def test_a_log_that_is_too_long() -> None:
    """Head and tail are retained, and the omitted part is counted."""
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


def failure(kind: str) -> TaskFailure:
    return TaskFailure(type=kind, message="[Errno 5] oops", reason="platform", stage="platform")


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), "3"),
        (np.arange(2), "[0,1]"),
        (datetime.date(2024, 1, 2), '"2024-01-02"'),
        ({1: (2, 3)}, '{"1": [2, 3]}'),
    ],
)
def test_variables_of_a_task_may_be_what_numpy_gives(value: object, expected: str) -> None:
    """As its result may."""
    (part,) = tasks_of([{"code": "x", "variables": {"x": value}}], TaskCheck((), has_model=False))
    assert f'{{"x":{expected}}}' == part.tasks[0].variables.replace('{"x": ', '{"x":')


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), r"variables\['x'\] is nan, which JSON does not have; use None"),
        ({2, 1}, r"variables\['x'\] is a set, and JSON takes plain data: .*; use sorted"),
    ],
)
def test_a_variable_of_a_task_that_is_no_plain_data_is_named(value: object, said: str) -> None:
    with pytest.raises(BadTasksError, match=said):
        list(tasks_of([{"code": "x", "variables": {"x": value}}], TaskCheck((), has_model=False)))


def test_tasks_of_a_file_that_gzip_has_packed(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"code": "1"}\n{"code": "2"}\n')
    (tmp_path / "tasks").write_bytes(packed)
    (part,) = tasks_of(tmp_path / "tasks", TaskCheck((), has_model=False))
    assert ["1", "2"] == [task.code for task in part.tasks]


@pytest.mark.parametrize("damage", [lambda data: data[:-4], lambda data: data[:14] + b"\xff" * 9])
def test_damaged_gzip_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    (tmp_path / "tasks").write_bytes(damage(gzip.compress(b'{"code": "1"}\n')))
    with pytest.raises(UsageError, match="cannot be read: its gzip data are damaged"):
        list(tasks_of(tmp_path / "tasks", TaskCheck((), has_model=False)))
