"""Settings for running the tasks of a job. Values only, cheap to import for a command that only builds its flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote_security.options import Options, option

MAX_CONCURRENCY: Final = 1_000
"""Tasks of one job at once: one process handles them. The machines limit how many run."""

MAX_BACKOFF: Final = 300.0
"""Maximum seconds between two attempts."""


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
