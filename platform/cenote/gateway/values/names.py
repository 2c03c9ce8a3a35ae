"""Names that tenants choose, and how a runtime is written in full: `tenant/runtime`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import UsageError

MAX_NAME: Final = 64

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_name(kind: str, name: str) -> str:
    """Returns the name. Raises UsageError unless it is safe in paths, URLs and logs. kind: for the error."""
    if len(name) > MAX_NAME or _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name[: MAX_NAME + 1]!r} is no name for a {kind}: up to {MAX_NAME} letters and digits of ASCII, and "
            f"'.', '_', '-' between them"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifiedName:
    """A runtime's name with its tenant's. Tenants write their own runtimes without the tenant."""

    tenant: str
    runtime: str

    def __post_init__(self) -> None:
        check_name("tenant", self.tenant)
        check_name("runtime", self.runtime)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.runtime}"

    @classmethod
    def parse(cls, text: str, *, tenant: str) -> QualifiedName:
        """Reads `runtime` or `tenant/runtime`. tenant: the default where none is written."""
        before, slash, after = text.partition("/")
        return cls(tenant=before, runtime=after) if slash else cls(tenant=tenant, runtime=before)
