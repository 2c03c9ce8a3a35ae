"""Size limits of a job, and problems of its tasks, reported for all of them at once. Values only.

Both sides of the wire use it: the platform enforces the limits, clients check before they send anything.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from cenote_proto.v1 import job_pb2
from cenote_security.errors import UsageError
from cenote_security.values.plain_json import from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """The problem of one task of the input. line: from 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class BadTasksError(UsageError):
    """Tasks that cannot be run; nothing was. lines: the first bad ones. found: how many there are."""

    def __init__(self, lines: Sequence[BadLine], found: int) -> None:
        super().__init__(tuple(lines), found)
        self.lines = tuple(lines)
        self.found = found

    def __str__(self) -> str:
        left = self.found - len(self.lines)
        listed = "\n".join(f"  {line}" for line in self.lines)
        more = f"\n  and {left} more" if left else ""
        return f"{self.found} of the tasks cannot be run, and none was:\n{listed}{more}"


class BadLines:
    """Problems of an input: the first ones, and how many there are."""

    def __init__(self) -> None:
        self._lines: list[BadLine] = []
        self._found = 0

    def note(self, line: int, reason: str) -> None:
        self._found += 1
        if len(self._lines) < MAX_PROBLEMS:
            self._lines.append(BadLine(line=line, reason=reason))

    def raise_any(self) -> None:
        """Raises BadTasksError if there are any."""
        if self._found:
            raise BadTasksError(self._lines, self._found)


MAX_TASKS: Final = 10_000_000
"""Tasks of one job. Each is a row of the platform's database; no process holds them all at once."""

MAX_INPUT: Final = 8 * 2**30
"""Bytes of all tasks of a job, which the platform's database stores."""

MAX_TASK: Final = 2**20
"""Bytes of one task, with its variables: it goes in one message."""

MAX_TASK_NAME: Final = 200
"""Characters of a task's id."""

MAX_VARIABLES: Final = 100
"""Names of a job's shared variables, or of a task's own."""

MAX_PROBLEMS: Final = 50
"""Bad lines that are reported at once, with the number of all."""

MAX_KEY: Final = 200

MAX_CODE: Final = 256 * 2**10
"""Characters of `setup`."""

MAX_RETRIED: Final = 10_000
"""Tasks that one retry request can name; without names it retries all that failed."""


class TaskCheck:
    """Checks one job's tasks in order, one by one: the caller says which ids are taken, see `refuse`.

    shared: names that all of them have. has_model: whether agents can work.
    """

    def __init__(self, shared: Collection[str], *, has_model: bool) -> None:
        self._shared = frozenset(shared)
        self._has_model = has_model
        self._problems = BadLines()
        self._bytes = 0
        self.tasks = 0
        """The number of checked tasks."""

    @property
    def bytes(self) -> int:
        """Bytes of the checked tasks."""
        return self._bytes

    def see(self, task: job_pb2.JobTask) -> bool:
        """Checks the next task. Returns whether it can run. Raises UsageError where the whole input is too large."""
        if self.tasks >= MAX_TASKS:
            raise UsageError(f"a job has up to {MAX_TASKS} tasks; submit the rest as another job")
        size = task.ByteSize()
        self._bytes += size
        if self._bytes > MAX_INPUT:
            raise UsageError(
                f"the tasks of a job have up to {MAX_INPUT >> 20} MiB; share larger data, and give it by `variables`"
            )
        self.tasks += 1
        reason = f"it has {size} bytes, of up to {MAX_TASK}" if size > MAX_TASK else self._wrong(task)
        if reason:
            self.refuse(task.line, reason)
        return not reason

    def skip(self, line: int, reason: str) -> None:
        """Counts and records a line that is not a task."""
        self.tasks += 1
        self.refuse(line, reason)

    def refuse(self, line: int, reason: str) -> None:
        """Records why a checked task cannot run."""
        self._problems.note(line, reason)

    def finish(self) -> None:
        """Call after the last task. Raises BadTasksError; UsageError if there was no task."""
        self._problems.raise_any()
        if not self.tasks:
            raise UsageError("a job has at least one task")

    def _wrong(self, task: job_pb2.JobTask) -> str:
        return _wrong_name(task.id) or self._wrong_work(task) or self._wrong_variables(task.variables)

    def _wrong_work(self, task: job_pb2.JobTask) -> str:
        kind = task.WhichOneof("work")
        if kind is None or not getattr(task, kind).strip():
            return 'it has neither "task", a text for an agent, nor "code", a cell'
        if kind == "task" and not self._has_model:
            return 'a "task" is for an agent, and the job has no model'
        return ""

    def _wrong_variables(self, text: str) -> str:
        if not text:
            return ""
        try:
            values = from_json(text)
        except (ValueError, RecursionError) as error:
            return f'its "variables" are no JSON: {str(error)[:100]}'
        if not isinstance(values, dict):
            return 'its "variables" are a JSON object of values by name'
        if len(values) > MAX_VARIABLES:
            return f"it has {len(values)} variables, of up to {MAX_VARIABLES}"
        for name in values:
            if wrong := wrong_identifier(name):
                return wrong
            if name in self._shared:
                return f"the variable {name!r} is one of the job's already"
        return ""


def _wrong_name(name: str) -> str:
    if 0 < len(name) <= MAX_TASK_NAME and name.isprintable():
        return ""
    return f"an id has 1 to {MAX_TASK_NAME} printable characters, unlike {name[:50]!r}"


def wrong_identifier(name: str) -> str:
    """Why it is not a valid variable name; empty if it is."""
    if name.isidentifier() and not keyword.iskeyword(name) and len(name) <= 100:
        return ""
    return f"{name[:100]!r} is no name for a variable: it is a Python identifier"
