"""What a tenant's policies may ask of machines that are not its own. Values only."""

from __future__ import annotations

import math
from typing import Final

from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy

LONGEST_LEASE: Final = 86_400.0
"""Seconds that a runtime outlives its last client, if it is to end at all."""

_MAX_LISTED: Final = 100
"""Modules to preload, and variables of the environment: a node keeps a process for each list of modules."""


def check_bounds(policy: SandboxPolicy) -> None:
    """Raises RejectedError for what no tenant may have, whatever its token."""
    if policy.isolation == "none":
        raise RejectedError('the platform runs nothing without walls; ask for another isolation than "none"')
    if policy.mounts:
        raise RejectedError(
            "the platform mounts nothing of its machines; bring files with runtime.files, or values with inject"
        )
    if max(len(policy.preload), len(policy.env)) > _MAX_LISTED:
        raise RejectedError(f"a policy lists at most {_MAX_LISTED} modules to preload, and variables")


def check_lease(lease: float) -> None:
    """Raises UsageError."""
    if not (math.isfinite(lease) and 0 <= lease <= LONGEST_LEASE):
        raise UsageError(f"a lease is of 0 (for no end) to {LONGEST_LEASE:g} s, not {lease!r}")
