"""Shared by tests of jobs: small runtimes, processes that work on a job, other tenants."""

from __future__ import annotations

from tests.support.orchestrator.studio import Studio

import cenote
from cenote.gateway.store.database import Database
from cenote.gateway.store.quotas import QuotaBook
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote.gateway.values.quota import Quota
from cenote_security.auth.tokens import Scope
from cenote_security.policy import SandboxPolicy

BARE = SandboxPolicy(preload=(), memory="256MiB")


def runners(studio: Studio) -> list[int]:
    """Processes of this platform that work on jobs."""
    return studio.working("job")


def someone(studio: Studio, tenant: str, *scopes: Scope, **limits: int) -> cenote.Platform:
    """A client of a tenant that is created for it."""
    with Database(studio.folder / "gateway.db") as database:
        owner = Tenants(database).create(tenant)
        for quota, limit in limits.items():
            QuotaBook(database).set_limit(owner.id, Quota(quota), limit)
        token = Tokens(database).issue(owner.id, scopes or list(Scope))
    return cenote.connect(studio.address, token.text)
