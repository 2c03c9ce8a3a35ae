"""The caller of the gateway, once it is authenticated."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_security.auth.tokens import Scope
from cenote_security.errors import ScopeMissingError
from cenote_security.ids import TenantId, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A tenant, authenticated by one of its tokens. weight: the tenant's share of a full machine."""

    tenant: TenantId
    tenant_name: str
    weight: float
    token: TokenId
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        """Raises ScopeMissingError unless the token has this scope: no scope implies another."""
        if scope not in self.scopes:
            raise ScopeMissingError(scope.value, tuple(sorted(self.scopes)))
