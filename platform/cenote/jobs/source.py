"""Where a job's tasks come from: a file with one JSON object a line, or a list of dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cenote.jobs.checks import MAX_INPUT, TaskCheck
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import job_pb2
from cenote_security.errors import UsageError

FIELDS: Final = frozenset({"id", "task", "code", "variables"})

MESSAGE: Final = 2**20
"""Bytes of tasks in one message, besides the last of them."""

Source = str | Path | Iterable[Mapping[str, object]]


def tasks_of(source: Source, check: TaskCheck) -> list[job_pb2.JobTasks]:
    """All tasks, in messages. source: a path, or dictionaries.

    Raises BadTasksError for bad tasks; UsageError for a file that cannot be read, or is too large.
    """
    batches = [job_pb2.JobTasks()]
    size = 0
    for number, given in objects_of(source):
        task = _task(number, given, check)
        if task is None:
            continue
        check.see(task)
        if size > MESSAGE:
            batches.append(job_pb2.JobTasks())
            size = 0
        batches[-1].tasks.append(task)
        size += task.ByteSize()
    check.finish()
    return batches


def objects_of(source: Source) -> Iterator[tuple[int, object]]:
    """Objects with their lines, from 1."""
    if isinstance(source, str | Path):
        yield from _lines(Path(source))
    elif isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise UsageError(f"the tasks of a job are a path, or a list of dictionaries, not {source!r:.100}")
    else:
        yield from enumerate(source, 1)


def _lines(path: Path) -> Iterator[tuple[int, object]]:
    """Invalid JSON is returned as an error. Blank lines are skipped."""
    try:
        if path.stat().st_size > MAX_INPUT:
            raise UsageError(f"{str(path)!r} has more than the {MAX_INPUT >> 20} MiB that a job may have")
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parsed(line)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from None


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return UsageError(f"it is no JSON: {str(error)[:200]}")


def _task(number: int, given: object, check: TaskCheck) -> job_pb2.JobTask | None:
    """None for a refused task."""
    reason = _wrong(given)
    if not reason:
        assert isinstance(given, Mapping)
        try:
            return _message(number, given)
        except (TypeError, ValueError, RecursionError) as error:
            reason = str(error)[:200]
    check.refuse(number, reason)
    return None


def _wrong(given: object) -> str:
    if isinstance(given, UsageError):
        return str(given)
    if not isinstance(given, Mapping):
        return 'it is no object such as {"id": "a", "code": "1 + 1"}'
    unknown = sorted(str(name) for name in given if name not in FIELDS)
    if "custom_id" in given and "body" in given:
        return (
            "this is a line of OpenAI's batch format: submit it with `cenote job submit --batch`, or read_batch of "
            'cenote.jobs; a task is {"id": custom_id, "task": the text of its messages}'
        )
    if unknown:
        return f"it has {unknown[0][:50]!r}, and there are {', '.join(sorted(FIELDS))}"
    if ("task" in given) == ("code" in given):
        return 'it has either "task", a text for an agent, or "code", a cell'
    for name in ("task", "code"):
        if name in given and not isinstance(given[name], str):
            return f'its "{name}" is a text, not a {type(given[name]).__name__}'
    if not isinstance(given.get("id", ""), str | int) or isinstance(given.get("id"), bool):
        return f'its "id" is a text, not {given["id"]!r:.50}'
    return ""


def _message(number: int, given: Mapping[str, object]) -> job_pb2.JobTask:
    task = make(job_pb2.JobTask, id=str(given.get("id", number)), line=number)
    if "task" in given:
        task.task = utf8_text(str(given["task"]))
    else:
        task.code = utf8_text(str(given["code"]))
    variables = given.get("variables")
    if variables:
        task.variables = utf8_text(json.dumps(variables, allow_nan=False))
    return task


def named(tasks: Sequence[str] | None) -> list[str]:
    """Ids of tasks, or none for all. Raises UsageError."""
    if isinstance(tasks, str):
        raise UsageError(f"tasks are named in a list, such as [{tasks!r}]")
    return list(tasks or ())
