"""What tenants' policies may use on machines that are not their own. Values only."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cenote_security.environment import Environment
from cenote_security.errors import RejectedError, UsageError
from cenote_security.ids import TenantId
from cenote_security.options import Definition, definitions, either
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import shown_size
from cenote_security.problems import Problems

LONGEST_LEASE: Final = 86_400.0
"""Maximum lease in seconds, unless a runtime has none."""

PRELOADS: Final = tuple(SandboxPolicy().preload)
"""Modules that tenants may preload, besides those that the operator names.

Preloads are imported outside the jails, in a process that a node keeps for each list of them, and count to no quota.
So the operator decides which are allowed, and their order makes no difference.
"""

MAX_POLICY: Final = 64 * 2**10
"""Bytes of a policy as a message; it is stored for as long as its runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBounds:
    """What the operator of a platform allows all tenants.

    preloads: allowed modules. environments: the operator's, digests by name. own: a tenant's, likewise; empty for
    those that are not ready.
    """

    preloads: Sequence[str] = PRELOADS
    environments: Mapping[str, str] = field(default_factory=dict)
    own: Callable[[TenantId], Mapping[str, str]] = field(default=lambda _tenant: {})

    def apply(self, policy: SandboxPolicy, tenant: TenantId) -> SandboxPolicy:
        """The policy as the platform carries it out, with its environment by digest. Raises RejectedError with
        everything that tenants may not have.
        """
        wrong = Problems()
        for known in definitions(SandboxPolicy):
            with wrong.noting():
                _check_for_tenants(known, getattr(policy, known.name))
        if policy.mounts:
            wrong.note(
                RejectedError(
                    "the platform mounts nothing of its machines; bring files with runtime.files, or values "
                    "with inject"
                )
            )
        digest = None
        with wrong.noting():
            digest = self.digest_of(policy.environment, tenant)
        if foreign := sorted(set(policy.preload) - set(self.preloads)):
            wrong.note(
                RejectedError(
                    f"the platform preloads {', '.join(self.preloads) or 'nothing'}, not {foreign[0][:100]!r}; leave "
                    f"it out of preload, cells can import it all the same"
                )
            )
        wrong.raise_all()
        preload = tuple(name for name in self.preloads if name in policy.preload)
        if digest is not None and digest not in self.environments.values():
            preload = ()  # the modules of these names would be a tenant's, in a process that other tenants share
        return replace(policy, preload=preload, environment=digest)

    def digest_of(self, wanted: Environment | str | None, tenant: TenantId) -> str | None:
        """The digest of the environment that a policy names. Raises RejectedError."""
        if wanted is None:
            return None
        name = str(wanted)  # messages contain no definition
        known = {**self.own(tenant), **self.environments}
        digest = known.get(name, name)
        if not digest:
            raise RejectedError(
                f"environment {name[:100]!r} is not ready; `cenote env ls --address ADDRESS` tells how far it is, or "
                f"why it has failed"
            )
        if digest in known.values():
            return digest
        raise RejectedError(
            f"this platform has {_environments(known)} for this tenant, not {name[:100]!r}; `cenote env build "
            f"--address ADDRESS` builds one where its operator allows that, and its operator adds one with "
            f"`cenote env build` and `cenote up --environment NAME`"
        )


def _environments(names: Collection[str]) -> str:
    return f"the environments {', '.join(sorted(names))}" if names else "no environments"


def _check_for_tenants(known: Definition, value: Any) -> None:
    """Raises RejectedError for a valid value that tenants may not have."""
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
