"""How large a job may be. The platform holds clients to these; clients say so before they send anything."""

from __future__ import annotations

from typing import Final

MAX_TASKS: Final = 100_000
"""Of one job: each is a row, and is looked at when a process takes the job up."""

MAX_INPUT: Final = 128 * 2**20
"""Bytes of all tasks of a job; larger data belongs into references."""

MAX_TASK: Final = 2**20
"""Bytes of one task, with its variables: it goes in one message."""

MAX_TASK_NAME: Final = 200
"""Characters of a task's id."""

MAX_VARIABLES: Final = 100
"""Names that a job gives to all tasks, or that a task has of its own."""

MAX_PROBLEMS: Final = 50
"""Lines with something wrong that are told of at once; the number of all is told too."""

MAX_KEY: Final = 200

MAX_CODE: Final = 256 * 2**10
"""Characters of `setup`."""

MAX_RETRIED: Final = 10_000
"""Tasks that are named in one request to do them again; without names it is all that failed."""
