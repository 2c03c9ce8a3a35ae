"""For how many tasks of a job there is room: in its tenant's quotas, and on the machines. Values only.

A quarter of each quota is left for what the tenant does besides; where nothing of the job runs, one task may have all
that is there, since a small quota would let none begin.
"""

from __future__ import annotations

from typing import Final

from cenote.gateway.quota import Amounts, Quota
from cenote_security.policy import SandboxPolicy
from cenote_worker.job_rules import MAX_CONCURRENCY

OF_A_PROCESSOR: Final = 4
"""Tasks of one job for each processor: most of the time they wait for a model, or for data."""

AT_LEAST: Final = 16
"""Tasks of one job, however few processors there are."""


def tasks_on(processors: int) -> int:
    """How many tasks of one job may be under way on machines that have so many, all together."""
    return min(max(AT_LEAST, OF_A_PROCESSOR * processors), MAX_CONCURRENCY)


def room(
    limits: Amounts, used: Amounts, need: Amounts, running: int, on_machines: int = MAX_CONCURRENCY
) -> int:
    """How many more may begin. need: of one task. running: tasks of this job. on_machines: see tasks_on."""
    return min(_room_in_quotas(limits, used, need, running), max(on_machines - running, 0))


def _room_in_quotas(limits: Amounts, used: Amounts, need: Amounts, running: int) -> int:
    bound = [quota for quota in need if quota in limits and need[quota] > 0]
    free = min(
        ((limits[quota] - limits[quota] // 4 - used[quota]) // need[quota] for quota in bound),
        default=MAX_CONCURRENCY,
    )
    if free > 0 or running:
        return max(free, 0)
    return int(all(used[quota] + need[quota] <= limits[quota] for quota in bound))


def fits(limits: Amounts, need: Amounts) -> Quota | None:
    """The quota that is too small for a single task, if nothing else had any of it; None if there is none."""
    return next((quota for quota in need if quota in limits and need[quota] > limits[quota]), None)


def need_of(policy: SandboxPolicy) -> Amounts:
    """What the runtime of one task takes."""
    return {Quota.RUNTIMES: 1, Quota.MEMORY: policy.memory_bytes, Quota.CPUS: policy.millicpus}
