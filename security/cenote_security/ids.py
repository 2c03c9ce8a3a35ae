"""Names that the platform gives: never guessed, never given twice."""

from __future__ import annotations

import secrets
from typing import Final, NewType

TenantId = NewType("TenantId", str)
TokenId = NewType("TokenId", str)
RuntimeId = NewType("RuntimeId", str)
TeamId = NewType("TeamId", str)
JobId = NewType("JobId", str)
EnvironmentId = NewType("EnvironmentId", str)

_BYTES: Final = 16
"""128 bits from the system's generator: another tenant's id cannot be guessed."""


def new_tenant_id() -> TenantId:
    return TenantId(f"tn_{secrets.token_hex(_BYTES)}")


def new_token_id() -> TokenId:
    """No prefix: it stands inside a token, which has one."""
    return TokenId(secrets.token_hex(_BYTES))


def new_runtime_id() -> RuntimeId:
    return RuntimeId(f"rt_{secrets.token_hex(_BYTES)}")


def new_team_id() -> TeamId:
    return TeamId(f"tm_{secrets.token_hex(_BYTES)}")


def new_job_id() -> JobId:
    return JobId(f"jb_{secrets.token_hex(_BYTES)}")


def new_environment_id() -> EnvironmentId:
    return EnvironmentId(f"en_{secrets.token_hex(_BYTES)}")
