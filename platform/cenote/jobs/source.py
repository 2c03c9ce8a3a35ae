"""Where a job's tasks come from: a file with one JSON object a line, or dictionaries. They are read one by one, and
those that were read lie in a temporary file.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cenote.jobs.checks import MAX_INPUT, TaskCheck
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import job_pb2
from cenote_security.errors import UsageError
from cenote_security.values.plain_json import as_json

FIELDS: Final = frozenset({"id", "task", "code", "variables"})

_GZIP: Final = b"\x1f\x8b"
"""What gzip's files begin with, and no text does."""

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""What texts in UTF-16 begin with."""

MESSAGE: Final = 2**20
"""Bytes of tasks in one message, besides the last of them."""

Source = str | Path | Iterable[Mapping[str, object]]


class Spool:
    """Records in their order, and lines by name. However many there are, memory holds two MiB of them.

    It is a temporary database of SQLite: it writes to TMPDIR, or to /var/tmp, once it has more than that, and is gone
    with this object. Used by one thread at a time. Raises UsageError where there is no room for it.
    """

    def __init__(self) -> None:
        self._records = 0
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for sql in (
            "PRAGMA journal_mode = OFF",
            "CREATE TABLE records (number INTEGER PRIMARY KEY, data BLOB NOT NULL)",
            "CREATE TABLE names (name TEXT PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID",
            "BEGIN",
        ):
            self._run(sql)

    def add(self, data: bytes) -> None:
        self._run("INSERT INTO records VALUES (?, ?)", self._records, data)
        self._records += 1

    def first_line(self, name: str, line: int) -> int:
        """The line that has the name, which is this one unless there was an earlier one."""
        if self._run("INSERT INTO names VALUES (?, ?) ON CONFLICT DO NOTHING", name, line).rowcount:
            return line
        return int(self._run("SELECT line FROM names WHERE name = ?", name).fetchone()[0])

    def get(self, number: int) -> bytes:
        """number: from 0, of a record that there is."""
        return bytes(self._run("SELECT data FROM records WHERE number = ?", number).fetchone()[0])

    def __len__(self) -> int:
        return self._records

    def __iter__(self) -> Iterator[bytes]:
        return map(self.get, range(len(self)))

    def _run(self, sql: str, *values: str | int | bytes) -> sqlite3.Cursor:
        with _explained():
            return self._database.execute(sql, values)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UsageError(
            f"the tasks find no room among the temporary files: {error}; name a folder with room in TMPDIR"
        ) from None


class TaskMessages:
    """Tasks that can run, in messages of about MESSAGE bytes; they can be read more than once."""

    def __init__(self, spool: Spool, check: TaskCheck) -> None:
        self._spool = spool
        self.tasks = check.tasks
        self.bytes = check.bytes

    def __iter__(self) -> Iterator[job_pb2.JobTasks]:
        return map(job_pb2.JobTasks.FromString, self._spool)


def tasks_of(source: Source, check: TaskCheck) -> TaskMessages:
    """All tasks. source: a path, or dictionaries.

    Raises BadTasksError for bad tasks; UsageError for a file that cannot be read, or is too large.
    """
    spool, batch, size = Spool(), job_pb2.JobTasks(), 0
    for number, given in objects_of(source):
        task = _task(number, given, check)
        if task is None or not check.see(task):
            continue
        if (earlier := spool.first_line(task.id, number)) != number:
            check.refuse(number, f"the id {task.id!r:.100} is that of line {earlier} too")
            continue
        batch.tasks.append(task)
        size += task.ByteSize()
        if size > MESSAGE:
            spool.add(batch.SerializeToString())
            batch, size = job_pb2.JobTasks(), 0
    check.finish()
    if batch.tasks:
        spool.add(batch.SerializeToString())
    return TaskMessages(spool, check)


def objects_of(source: Source) -> Iterator[tuple[int, object]]:
    """Objects with their lines, from 1."""
    if isinstance(source, str | Path):
        yield from _lines(Path(source))
    elif isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise UsageError(f"the tasks of a job are a path, or a list of dictionaries, not {source!r:.100}")
    else:
        yield from enumerate(source, 1)


def _lines(path: Path) -> Iterator[tuple[int, object]]:
    """Invalid JSON is returned as an error. Blank lines are skipped. A file that gzip has packed is unpacked."""
    try:
        if path.stat().st_size > MAX_INPUT:
            raise UsageError(f"{str(path)!r} has more than the {MAX_INPUT >> 20} MiB that a job may have")
        with path.open("rb") as file:
            lines = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _parsed(line)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"its gzip data are damaged: {error}"
        raise UsageError(f"{str(path)!r} cannot be read: {reason}") from None


def _parsed(line: bytes) -> object:
    if line.startswith(_UTF_16) or b"\0" in line:
        return UsageError("it is no UTF-8 text, but UTF-16 or binary data; convert the file first")
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
        except (TypeError, ValueError, RecursionError, UsageError) as error:
            reason = str(error)[:400]
    check.skip(number, reason)
    return None


def _wrong(given: object) -> str:
    if isinstance(given, UsageError):
        return str(given)
    if isinstance(given, list):
        return "it is a list; a file of tasks has one JSON object a line, without brackets around them"
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
        try:
            text = json.dumps(variables, allow_nan=False)
        except (TypeError, ValueError):  # the slower way, for numpy's numbers, or to say what is wrong
            text = as_json(variables, "variables")
        task.variables = utf8_text(text)
    return task


def named(tasks: Sequence[str] | None) -> list[str]:
    """Ids of tasks, or none for all. Raises UsageError."""
    if isinstance(tasks, str):
        raise UsageError(f"tasks are named in a list, such as [{tasks!r}]")
    return list(tasks or ())
