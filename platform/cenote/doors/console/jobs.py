"""Pages of batch jobs: all of them, one with its tasks and the causes of failures, one task; retry and cancel."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import quote

from starlette.responses import Response

from cenote.doors.callers import Caller
from cenote.doors.console.session import CallerRoute, Visit, page_number, redirect
from cenote_security.auth.tokens import Scope
from cenote_security.errors import UsageError

if TYPE_CHECKING:  # the extra `platform` has what these need, and pages without a platform do not need it
    from cenote.jobs import Job, JobStatus
    from cenote.jobs.reports import TaskState

JOBS_OF_A_PAGE: Final = 50
TASKS_OF_A_PAGE: Final = 100

MOST_MESSAGE: Final = 300
"""Characters of an error on the page of a job."""


async def _job(visit: Visit, caller: Caller) -> Job:
    caller.require(Scope.JOBS)
    return await caller.the_platform().jobs.async_get(visit.request.path_params["job"])


async def _jobs(visit: Visit, caller: Caller) -> Response:
    caller.require(Scope.JOBS)
    after = visit.request.query_params.get("after", "")
    found = await caller.the_platform().jobs.async_page(after=after, limit=JOBS_OF_A_PAGE)
    return visit.page(
        "jobs",
        title="Jobs",
        jobs=found,
        following=found[-1].name if len(found) == JOBS_OF_A_PAGE else "",
        after=after,
    )


async def _one(visit: Visit, caller: Caller) -> Response:
    job = await _job(visit, caller)
    state, after = _state(visit), page_number(visit.request.query_params.get("after", "")) or 0
    status, failures, tasks = await asyncio.gather(
        job.async_status(),
        job.async_failures(),
        job.async_tasks(after=after, limit=TASKS_OF_A_PAGE, states=(state,) if state else ()),
    )
    return visit.page(
        "job",
        title=f"Job {status.name}",
        job=status,
        rate=_rate(status),
        failures=failures,
        tasks=tasks,
        state=state,
        states=_known_states(),
        after=after,
        following=tasks[-1].index if len(tasks) == TASKS_OF_A_PAGE else 0,
        most=MOST_MESSAGE,
        follows=not status.is_over and visit.request.query_params.get("follow") == "1",
    )


def _known_states() -> tuple[TaskState, ...]:
    from cenote.jobs.reports import TaskState

    return get_args(TaskState)


def _state(visit: Visit) -> TaskState | None:
    """Raises UsageError."""
    asked = visit.request.query_params.get("state", "")
    known = _known_states()
    found = next((state for state in known if state == asked), None)
    if asked and found is None:
        raise UsageError(f"tasks have no state {asked!r:.60}; there are {', '.join(known)}")
    return found


def _rate(status: JobStatus) -> float:
    """Tasks that were over per minute, from the start up to now or to the end; 0 before there were any."""
    elapsed = (status.ended or time.time()) - status.started
    return 60 * status.over / elapsed if status.started and elapsed > 0 else 0.0


async def _task(visit: Visit, caller: Caller) -> Response:
    job, task = await _job(visit, caller), visit.request.path_params["task"]
    details, log = await asyncio.gather(job.async_task(task), job.async_logs(task))
    return visit.page(
        "task",
        title=f"Task {details.info.id} of {job.name}",
        job=job.name,
        one=details,
        task=details.info,
        log=log,
    )


async def _retry(visit: Visit, caller: Caller) -> Response:
    task = (await visit.form()).get("task", "")
    job = await _job(visit, caller)
    await job.async_retry([task] if task else None)
    return redirect(_address(job.name, task))


async def _cancel(visit: Visit, caller: Caller) -> Response:
    await visit.form()
    job = await _job(visit, caller)
    await job.async_cancel()
    return redirect(_address(job.name))


def _address(job: str, task: str = "") -> str:
    page = f"/jobs/{quote(job, safe='')}"
    return f"{page}/tasks/{quote(task, safe='')}" if task else page


ROUTES: Final[tuple[CallerRoute, ...]] = (
    ("GET", "/jobs", _jobs),
    ("GET", "/jobs/{job}", _one),
    ("GET", "/jobs/{job}/tasks/{task:path}", _task),
    ("POST", "/jobs/{job}/retry", _retry),
    ("POST", "/jobs/{job}/cancel", _cancel),
)
