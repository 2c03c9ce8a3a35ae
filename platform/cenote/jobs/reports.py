"""What a platform reports about a job: its progress, and the result of each task."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypedDict

from cenote_proto.v1 import job_pb2
from cenote_security.printable import printable
from cenote_security.verdict import Verdict, of_reason

JobState = Literal["waiting", "running", "done", "cancelled"]
TaskStatus = Literal["succeeded", "failed", "cancelled"]
TaskState = Literal["waiting", "running", "succeeded", "failed", "cancelled"]

_STATES: Final[tuple[JobState, ...]] = ("waiting", "running", "done", "cancelled")
_STATUSES: Final[tuple[TaskStatus, ...]] = ("succeeded", "failed", "cancelled")
TASK_STATES: Final[tuple[TaskState, ...]] = ("waiting", "running", "succeeded", "failed", "cancelled")
"""In the order of their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The progress of a job. waiting to cancelled: numbers of tasks. tokens, cost (US dollars): of all attempts.

    Times are seconds since the epoch, 0 for not yet. starts: processes that have worked on it; more than one when
    they were killed. revision: how often tasks were requested again. expires: when the platform removes it.
    waiting_for: why tasks do not begin; empty when nothing prevents it. model: of its agents; empty without one.
    """

    id: str
    name: str
    state: JobState
    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    tokens: int
    cost: float
    created: float
    started: float
    ended: float
    starts: int
    revision: int
    expires: float
    waiting_for: str
    model: str = ""

    @property
    def tasks(self) -> int:
        return self.waiting + self.running + self.over

    @property
    def over(self) -> int:
        """How many tasks are over, whatever their result."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "cancelled")

    def as_data(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        return {**asdict(self), "tasks": self.tasks}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    """Why a task failed. type: a class name. stage: `setup`, `variables`, `task`, `result`, or `platform`.

    reason: of a cell as in ErrorInfo (`exception`, `time`, `memory`, ...); else `model`, `steps`, `incomplete`,
    `time`, `budget`, `quota`, `lost`, `jail`, `variables`, `full`, `platform`.
    """

    type: str
    message: str
    reason: str
    stage: str

    @property
    def verdict(self) -> Verdict:
        """The cause of the failure: the task, a limit, or the platform and the model."""
        return of_reason(self.reason)

    def __str__(self) -> str:
        return printable(f"{self.type}: {self.message}" if self.message else self.type, lines=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of a task. index: its place in the input, from 1.

    value: of the result variable, as plain data; None without one. answer: the agent's last words, or what the cell
    shows. attempts: how often it was begun. lost: attempts with an unknown outcome, because the platform failed
    during them: their effects outside the runtime may have happened more than once. duration: seconds of the last
    attempt. tokens, cost (US dollars): of all attempts.
    """

    index: int
    id: str
    status: TaskStatus
    value: Any = None
    answer: str = ""
    error: TaskError | None = None
    attempts: int = 0
    lost: int = 0
    duration: float = 0.0
    tokens: int = 0
    cost: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    def as_data(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        data = asdict(self)
        if self.error is not None:
            data["error"] |= {"verdict": self.error.verdict.kind, "limit": self.error.verdict.limit}
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task without its result. index: its place in the input, from 1. For the rest see TaskResult.

    error: with at most the beginning of its message.
    """

    index: int
    id: str
    state: TaskState
    error: TaskError | None = None
    attempts: int = 0
    lost: int = 0
    duration: float = 0.0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetails:
    """A task with its work: a text for an agent, or the code of a cell. The other is empty.

    variables: plain data that its runtime has, as JSON; empty for none. value: of the result variable, as JSON; empty
    without one.
    """

    info: TaskInfo
    task: str
    code: str
    variables: str
    value: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause:
    """Failed tasks with one cause. error: of the first of them; None if it was not recorded. tasks: their number.

    examples: ids of the first few.
    """

    error: TaskError | None
    tasks: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """The log of a task's last attempt, as text. left_out: characters of the middle that were not kept."""

    text: str
    left_out: int


def status_of(message: job_pb2.JobDescription) -> JobStatus:
    counts = message.counts
    return JobStatus(
        id=message.id,
        name=message.name,
        state=_STATES[message.state] if message.state < len(_STATES) else "running",
        waiting=counts.waiting,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
        tokens=message.tokens,
        cost=message.nanodollars / 10**9,
        created=message.created,
        started=message.started,
        ended=message.ended,
        starts=message.starts,
        revision=message.revision,
        expires=message.expires,
        waiting_for=message.waiting_for,
        model=message.definition.model.name,
    )


def result_of(message: job_pb2.JobResult) -> TaskResult:
    return TaskResult(
        status=_STATUSES[message.status] if message.status < len(_STATUSES) else "failed",
        value=json.loads(message.value) if message.value else None,
        answer=message.answer,
        **_attempts(message),
    )


def task_of(message: job_pb2.TaskSummary) -> TaskInfo:
    return TaskInfo(
        state=TASK_STATES[message.state] if message.state < len(TASK_STATES) else "running",
        **_attempts(message),
    )


def details_of(message: job_pb2.TaskDescription) -> TaskDetails:
    work = message.work
    return TaskDetails(
        info=task_of(message.summary),
        task=work.task,
        code=work.code,
        variables=work.variables,
        value=message.value,
        answer=message.answer,
    )


def cause_of(message: job_pb2.FailureGroup) -> FailureCause:
    return FailureCause(error=_error(message), tasks=message.tasks, examples=tuple(message.examples))


class _Attempts(TypedDict):
    """What a result and a task without its result both say."""

    index: int
    id: str
    error: TaskError | None
    attempts: int
    lost: int
    duration: float
    tokens: int
    cost: float


def _attempts(message: job_pb2.JobResult | job_pb2.TaskSummary) -> _Attempts:
    return {
        "index": message.index,
        "id": message.id,
        "error": _error(message),
        "attempts": message.attempts,
        "lost": message.lost,
        "duration": message.duration,
        "tokens": message.tokens,
        "cost": message.nanodollars / 10**9,
    }


def _error(message: job_pb2.JobResult | job_pb2.TaskSummary | job_pb2.FailureGroup) -> TaskError | None:
    if not message.HasField("error"):
        return None
    told = message.error
    return TaskError(type=told.type, message=told.message, reason=told.reason, stage=told.stage)
