"""Batch jobs of a platform: a file of tasks goes in, a file of results comes out."""

from __future__ import annotations

from cenote_security.extras import importing

with importing("the platform's client", "platform"):
    from cenote.jobs.batch_format import Batch, batch_line, read_batch
    from cenote.jobs.checks import BadLine, BadTasksError
    from cenote.jobs.client import Job, Jobs
    from cenote.jobs.reports import (
        FailureCause,
        JobStatus,
        TaskDetails,
        TaskError,
        TaskInfo,
        TaskLog,
        TaskResult,
    )
    from cenote.platform_team import ModelSpec

__all__ = [
    "BadLine",
    "BadTasksError",
    "Batch",
    "batch_line",
    "FailureCause",
    "Job",
    "Jobs",
    "JobStatus",
    "ModelSpec",
    "read_batch",
    "TaskDetails",
    "TaskError",
    "TaskInfo",
    "TaskLog",
    "TaskResult",
]
