"""Whether a failure says something of the code that failed: what a trainer keeps or drops a rollout by. Pure.

What a model's code can bring about by itself is never `infrastructure`: it would learn to have its bad rollouts
dropped. So a process that was ended by SIGKILL counts as `task`, since code can do that to itself, and only what no
code in a jail can do counts as coming from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

VerdictKind = Literal["task", "limit", "infrastructure"]


_SHARED: Final = ("quota", "budget", "full")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure is down to: the code or the model (`task`), a limit that it met, or what it ran on.

    limit: which one, such as `time`, `memory` or `quota`; empty for the other kinds.
    """

    kind: VerdictKind
    limit: str = ""

    @property
    def counts(self) -> bool:
        """Whether a rollout that ended so says something of its actions; a trainer drops it where it does not.

        What others use up too, such as a quota, is no limit of the rollout's own.
        """
        return self.kind != "infrastructure" and self.limit not in _SHARED

    def __str__(self) -> str:
        return f"{self.kind} ({self.limit})" if self.limit else self.kind


TASK: Final = Verdict("task")
INFRASTRUCTURE: Final = Verdict("infrastructure")


def limit(name: str) -> Verdict:
    return Verdict("limit", name)


_LIMITS: Final = (
    "time",
    "memory",
    "disk",
    "processes",
    "output",
    "steps",
    "tokens",
    "budget",
    "quota",
    "full",
    "context",
)
_OUTSIDE: Final = ("closed", "reset", "hibernated", "lost", "model", "platform", "variables")
BY_REASON: Final[Mapping[str, Verdict]] = MappingProxyType(
    {name: limit(name) for name in _LIMITS} | dict.fromkeys(_OUTSIDE, INFRASTRUCTURE)
)
"""Of the reasons of cells (`ErrorInfo.reason`) and of tasks of jobs. All others are `task`."""


def of_reason(reason: str, *, outside: bool = False) -> Verdict:
    """outside: no code in the jail can have caused it, whatever the reason."""
    return INFRASTRUCTURE if outside else BY_REASON.get(reason, TASK)
