"""For how many tasks of a job there is room in its tenant's quotas. Values only.

A quarter of each quota is left for what the tenant does besides; where nothing of the job runs, one task may have all
that is there, since a small quota would let none begin.
"""

from __future__ import annotations

from cenote.gateway.quota import Amounts, Quota
from cenote.jobs.limits import MAX_CONCURRENCY
from cenote_security.policy import SandboxPolicy


def room(limits: Amounts, used: Amounts, need: Amounts, running: int) -> int:
    """How many more may begin. need: of one task. running: tasks of this job."""
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
    return {Quota.RUNTIMES: 1, Quota.MEMORY: policy.memory_bytes, Quota.CPUS: round(policy.cpus * 1000)}
