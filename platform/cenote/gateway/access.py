"""From what a caller shows to what it may do: by a token at the gateway, by a capability at an actor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cenote.gateway.principal import Principal
from cenote.gateway.runtimes import RuntimeRecord, Runtimes
from cenote.gateway.tokens import Tokens
from cenote_security.capability import REFERENCES, Capability, MasterKey, Right
from cenote_security.errors import RejectedError
from cenote_security.ids import RuntimeId
from cenote_security.scopes import Scope
from cenote_worker.serving.capabilities import to_rights
from cenote_worker.serving.rights import Rights

CAPABILITY_SECONDS: Final = 300
"""Long enough to connect, short enough that a revoked token is soon worth nothing anywhere."""

RIGHTS: Final = {
    Scope.RUNTIMES_READ: Right.READ,
    Scope.RUNTIMES_WRITE: Right.RUN,
    Scope.REFERENCES: Right.SHARE,
}
"""What each scope is at a runtime. The others are none there."""


class Access:
    """What the gateway's own servers ask, and what it gives to clients that go to an actor themselves."""

    def __init__(
        self, tokens: Tokens, runtimes: Runtimes, key: MasterKey, clock: Callable[[], float] = time.time
    ) -> None:
        self._tokens = tokens
        self._runtimes = runtimes
        self._key = key
        self._clock = clock

    def authorise(self, token: str, runtime: str | None) -> Rights:
        """The rights of a token at a runtime of its own tenant, by id; without one, at the tenant's references.

        Raises NotAuthenticatedError; UnknownRuntimeError for what its tenant does not have.
        """
        principal = self._tokens.authenticate(token)
        if runtime is not None:
            self._runtimes.by_id(principal.tenant, RuntimeId(runtime))
        return to_rights(principal.tenant, _rights(principal), principal.token)

    def capability(self, principal: Principal, runtime: RuntimeRecord) -> tuple[str, int]:
        """What opens a runtime to this principal at its actor, and until when in seconds since the epoch.

        Raises RejectedError when no scope of the token is good for a runtime.
        """
        rights = _rights(principal)
        if not rights or runtime.tenant != principal.tenant:
            raise RejectedError(
                "this token opens no runtime; use one with the scope 'runtimes:read' at least"
            )
        return self._signed(principal, runtime.id, rights)

    def reference_capability(self, principal: Principal) -> str:
        """What opens the tenant's references, on whichever node. Raises ScopeMissingError."""
        principal.require(Scope.REFERENCES)
        return self._signed(principal, REFERENCES, frozenset((Right.SHARE,)))[0]

    def _signed(self, principal: Principal, runtime: RuntimeId, rights: frozenset[Right]) -> tuple[str, int]:
        now = int(self._clock())
        capability = Capability(
            tenant=principal.tenant,
            runtime=runtime,
            holder=principal.token,
            rights=rights,
            issued=now,
            expires=now + CAPABILITY_SECONDS,
        )
        return self._key.for_runtime(runtime).sign(capability), capability.expires


def _rights(principal: Principal) -> frozenset[Right]:
    return frozenset(right for scope, right in RIGHTS.items() if scope in principal.scopes)
