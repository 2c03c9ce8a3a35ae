"""How large a job may be. The platform holds clients to these; clients say so before they send anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote_security.options import Options, option

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

MAX_CONCURRENCY: Final = 1_000
"""Tasks of one job at once: one process looks after them. How many are under way is bounded by the machines."""

MAX_BACKOFF: Final = 300.0
"""Seconds between two attempts at the most."""

MAX_RETRIED: Final = 10_000
"""Tasks that are named in one request to do them again; without names it is all that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules(Options):
    """How the tasks of a job are done."""

    concurrency: int = option(
        4,
        flag="concurrency",
        help="tasks at once, as far as there is room",
        at_least=1,
        at_most=MAX_CONCURRENCY,
    )
    attempts: int = option(
        1, flag="attempts", help="how often a task that fails is done", at_least=1, at_most=10
    )
    backoff: float = option(
        1.0,
        flag="backoff",
        help="how long before the second attempt; doubled with each further one",
        unit="seconds",
        above=0,
        at_most=MAX_BACKOFF,
    )
    timeout: float | None = option(
        None,
        flag="timeout",
        help="how long each attempt may take",
        unit="seconds",
        above=0,
        at_most=86_400,
        none="no limit but that of the policy",
    )

    def __post_init__(self) -> None:
        self.checked().raise_all()
