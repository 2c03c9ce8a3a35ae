"""What a tenant's policies may ask of machines that are not its own. Values only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy

LONGEST_LEASE: Final = 86_400.0
"""Seconds that a runtime outlives its last client, if it is to end at all."""

PRELOADS: Final = tuple(SandboxPolicy().preload)
"""Modules that tenants may have imported before their jails begin, unless the operator names others.

They are imported outside the jails, in a process that a node keeps for each list of them, at nobody's quota: so it is
the operator who says which, and their order makes no difference.
"""

MAX_POLICY: Final = 64 * 2**10
"""Bytes of a policy as a message; it is kept for as long as its runtime."""


def bounded(policy: SandboxPolicy, preloads: Sequence[str] = PRELOADS) -> SandboxPolicy:
    """The policy as the platform carries it out. Raises RejectedError for what no tenant may have."""
    if policy.isolation == "none":
        raise RejectedError('the platform runs nothing without walls; ask for another isolation than "none"')
    if policy.mounts:
        raise RejectedError(
            "the platform mounts nothing of its machines; bring files with runtime.files, or values with inject"
        )
    if foreign := sorted(set(policy.preload) - set(preloads)):
        raise RejectedError(
            f"the platform preloads {', '.join(preloads) or 'nothing'}, not {foreign[0][:100]!r}; leave it out of "
            f"preload, cells can import it all the same"
        )
    return replace(policy, preload=tuple(name for name in preloads if name in policy.preload))


def check_lease(lease: float) -> None:
    """Raises UsageError."""
    if not (math.isfinite(lease) and 0 <= lease <= LONGEST_LEASE):
        raise UsageError(f"a lease is of 0 (for no end) to {LONGEST_LEASE:g} s, not {lease!r}")
