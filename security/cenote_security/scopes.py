"""What a token lets its holder do. A closed list: what is not named here cannot be granted."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from cenote_security.errors import UsageError


class Scope(StrEnum):
    """One thing that a token may be good for, within its own tenant. None implies another.

    RUNTIMES_READ: list, describe, follow. RUNTIMES_WRITE: create, execute, inject, delete.
    REFERENCES: share values and inject shared ones. TEAMS: run agents on the platform.
    JOBS: batch jobs, which run cells and agents there.
    ADMIN: make, rotate and revoke the tenant's tokens, read its part of the audit log. Tenants and quotas are the
        operator's, on the gateway's own machine: no token reaches them.
    MACHINES: see the nodes, with how much of everybody's is on them.
    """

    RUNTIMES_READ = "runtimes:read"
    RUNTIMES_WRITE = "runtimes:write"
    REFERENCES = "references"
    TEAMS = "teams"
    JOBS = "jobs"
    ADMIN = "admin"
    MACHINES = "machines"


ORDINARY_SCOPES: Final = frozenset(Scope) - {Scope.ADMIN, Scope.MACHINES}
"""What a token gets when nobody says otherwise."""


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Raises UsageError for a name that is no scope, and for none at all."""
    listed = frozenset(map(_scope, names))
    if not listed:
        raise UsageError(f"a token needs at least one scope of {_known()}")
    return listed


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError:
        raise UsageError(f"unknown scope {name!r}; use one of {_known()}") from None


def _known() -> str:
    return ", ".join(Scope)
