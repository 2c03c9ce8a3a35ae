"""What a tenant's policies may ask of machines that are not its own. Values only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cenote_security.errors import RejectedError, UsageError
from cenote_security.options import Definition, definitions, either
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import shown_size
from cenote_security.problems import Problems

LONGEST_LEASE: Final = 86_400.0
"""Seconds that a runtime outlives its last client, if it is to end at all."""

PRELOADS: Final = tuple(SandboxPolicy().preload)
"""Modules that tenants may have imported before their jails begin, besides those that the operator names.

They are imported outside the jails, in a process that a node keeps for each list of them, at nobody's quota: so it is
the operator who says which, and their order makes no difference.
"""

MAX_POLICY: Final = 64 * 2**10
"""Bytes of a policy as a message; it is kept for as long as its runtime."""


def bounded(policy: SandboxPolicy, preloads: Sequence[str] = PRELOADS) -> SandboxPolicy:
    """The policy as the platform carries it out. Raises RejectedError with all that no tenant may have."""
    wrong = Problems()
    for known in definitions(SandboxPolicy):
        with wrong.noting():
            _check_for_tenants(known, getattr(policy, known.name))
    if policy.mounts:
        wrong.note(
            RejectedError(
                "the platform mounts nothing of its machines; bring files with runtime.files, or values with inject"
            )
        )
    if policy.environment is not None:
        wrong.note(
            RejectedError(
                "this platform has no environments; leave `environment` out, or use an embedded runtime, which "
                "builds its own"
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


def bounded_for_definition(policy: SandboxPolicy, preloads: Sequence[str] = PRELOADS) -> SandboxPolicy:
    """The same for a policy in the definition of a team or job, which is stored and shown as it is."""
    if policy.has_credentials:
        raise RejectedError(
            "the definition of a team or job has no credentials: it is stored and shown as it is; make a runtime "
            "with them, or a host function that does what they are for"
        )
    return bounded(policy, preloads)


def _check_for_tenants(known: Definition, value: Any) -> None:
    """Raises RejectedError for what is right, but not for tenants."""
    if value in known.option.not_for_tenants:
        rest = [choice for choice in known.choices if choice not in known.option.not_for_tenants]
        weak = "walls" if known.name == "isolation" else known.name
        raise RejectedError(
            f"no tenant chooses weaker {weak} than the machine has; ask for {known.name} {either(rest)}, not {value}"
        )
    most = known.option.tenants_at_most
    if most is not None and value > most:
        shown = shown_size(int(most)) if known.is_size else f"{most:g}"
        raise RejectedError(
            f"tenants have a {known.name} of at most {shown}, not {value}: {known.option.help}"
        )


def check_lease(lease: float) -> None:
    """Raises UsageError."""
    if not (math.isfinite(lease) and 0 <= lease <= LONGEST_LEASE):
        raise UsageError(f"a lease is of 0 (for no end) to {LONGEST_LEASE:g} s, not {lease!r}")
