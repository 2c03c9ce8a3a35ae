"""Bearer tokens as text, and the scopes that say what a token lets its holder do.

A token is `cenote_<id>_<secret>_<checksum>`, all in lower-case hexadecimal. The prefix lets people and secret
scanners see what they found, the id finds the record without the secret, and the checksum tells a mistyped or cut
token from a wrong one without a look-up. It protects nothing: anyone can compute it.

Scopes are a closed list: what is not named here cannot be granted.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cenote_security.errors import UsageError
from cenote_security.ids import TokenId


class Scope(StrEnum):
    """One thing that a token may be good for, within its own tenant. None implies another.

    RUNTIMES_READ: list, describe, follow. RUNTIMES_WRITE: create, execute, inject, delete.
    REFERENCES: share values and inject shared ones. TEAMS: run agents on the platform.
    JOBS: batch jobs, which run cells and agents there.
    ADMIN: make, rotate and revoke the tenant's tokens, read its part of the audit log. Tenants and quotas are the
        operator's, on the gateway's own machine: no token reaches them.
    MACHINES: see the nodes, with the load of all tenants on them.
    """

    RUNTIMES_READ = "runtimes:read"
    RUNTIMES_WRITE = "runtimes:write"
    REFERENCES = "references"
    TEAMS = "teams"
    JOBS = "jobs"
    ADMIN = "admin"
    MACHINES = "machines"


ORDINARY_SCOPES: Final = frozenset(Scope) - {Scope.ADMIN, Scope.MACHINES}
"""The scopes of a token by default."""


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


SECRET_BYTES: Final = 32

TOKEN_PATTERN: Final = r"cenote_[0-9a-f]{32}_[0-9a-f]{64}_[0-9a-f]{8}"
"""What a secret scanner looks for."""

_TOKEN: Final = re.compile(TOKEN_PATTERN)
_DOMAIN: Final = b"cenote bearer token\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A well-formed token, good or not. `text` is the secret: shown once, never logged, never stored."""

    id: TokenId
    text: str = field(repr=False)

    @classmethod
    def of(cls, token_id: TokenId, secret: bytes) -> BearerToken:
        """secret: SECRET_BYTES of them, from the system's generator."""
        if len(secret) != SECRET_BYTES:
            raise UsageError(f"the secret of a token has {SECRET_BYTES} bytes, not {len(secret)}")
        body = f"cenote_{token_id}_{secret.hex()}"
        return cls(id=token_id, text=f"{body}_{_checksum(body)}")

    @classmethod
    def parse(cls, text: str) -> BearerToken | None:
        """None for what is not a token, or not a whole one."""
        if _TOKEN.fullmatch(text) is None:
            return None
        body, _, checksum = text.rpartition("_")
        if checksum != _checksum(body):
            return None
        return cls(id=TokenId(text.split("_")[1]), text=text)

    def digest(self) -> str:
        """The digest that is stored, in hexadecimal.

        One round of SHA-256 is enough, and a slow hash would be wrong: those are for secrets that people choose.
        2**256 of these cannot be tried, however fast a trial is, while a slow hash would let each client with a wrong
        token spend the gateway's time.
        """
        return hashlib.sha256(_DOMAIN + self.text.encode("ascii")).hexdigest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode('ascii')):08x}"
