"""What a tenant's policies may ask of machines that are not its own. Values only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.problems import Problems

LONGEST_LEASE: Final = 86_400.0
"""Seconds that a runtime outlives its last client, if it is to end at all."""

PRELOADS: Final = tuple(SandboxPolicy().preload)
"""Modules that tenants may have imported before their jails begin, besides those that the operator names.

They are imported outside the jails, in a process that a node keeps for each list of them, at nobody's quota: so it is
the operator who says which, and their order makes no difference.
"""

MAX_CPUS: Final = 1_024
"""Of one runtime, in terms that every ledger can count."""

MAX_OUTPUT: Final = 64 * 2**20
"""Bytes that are kept of each cell's output: in the memory of whoever serves the runtime, which is in no quota."""

MAX_POLICY: Final = 64 * 2**10
"""Bytes of a policy as a message; it is kept for as long as its runtime."""


def bounded(policy: SandboxPolicy, preloads: Sequence[str] = PRELOADS) -> SandboxPolicy:
    """The policy as the platform carries it out. Raises RejectedError with all that no tenant may have."""
    wrong = Problems()
    if policy.isolation in ("none", "landlock"):
        wrong.note(
            RejectedError(
                f"no tenant chooses weaker walls than the machine has; ask for isolation auto, strict or gvisor, not "
                f"{policy.isolation}"
            )
        )
    if policy.limits == "watchdog":
        wrong.note(
            RejectedError(
                "no tenant chooses weaker limits than the machine has; ask for limits auto or cgroup"
            )
        )
    if policy.cpus > MAX_CPUS:
        wrong.note(
            RejectedError(f"no runtime has more than {MAX_CPUS} CPUs; ask for less than {policy.cpus:g}")
        )
    if policy.output_bytes > MAX_OUTPUT:
        wrong.note(
            RejectedError(
                f"at most {MAX_OUTPUT >> 20} MiB of a cell's output are kept; have cells write more into files"
            )
        )
    if policy.mounts:
        wrong.note(
            RejectedError(
                "the platform mounts nothing of its machines; bring files with runtime.files, or values with inject"
            )
        )
    if foreign := sorted(set(policy.preload) - set(preloads)):
        wrong.note(
            RejectedError(
                f"the platform preloads {', '.join(preloads) or 'nothing'}, not {foreign[0][:100]!r}; leave it "
                f"out of preload, cells can import it all the same"
            )
        )
    wrong.raise_all()
    return replace(policy, preload=tuple(name for name in preloads if name in policy.preload))


def check_lease(lease: float) -> None:
    """Raises UsageError."""
    if not (math.isfinite(lease) and 0 <= lease <= LONGEST_LEASE):
        raise UsageError(f"a lease is of 0 (for no end) to {LONGEST_LEASE:g} s, not {lease!r}")


def check_hibernation(seconds: float) -> None:
    """Raises UsageError."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"a runtime hibernates after 0 (for never) or more seconds, not {seconds!r}")
