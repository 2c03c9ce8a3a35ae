"""Capabilities: what lets a client talk to the actor of one runtime directly, for a short while.

    cenotecap.<key id>.<claims, base64url of JSON>.<HMAC-SHA256 of all before it, hexadecimal>

The gateway signs, the actor checks on its own. Each runtime has a key of its own, derived from one that
stays with the gateway, so an actor that was taken over can sign for its own runtime and for no other.

A JWT would do the same with a header that names the algorithm, which is where JWT libraries went wrong time and
again; here there is one algorithm and nothing to choose. Nothing can take a capability back before it expires: that
is why it expires soon.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cenote_security.errors import NotAuthenticatedError, UsageError
from cenote_security.ids import RuntimeId, TenantId, TokenId

KEY_BYTES: Final = 32

MAX_LIFETIME: Final = 3600
"""Seconds. A revoked token lives on in its capabilities for this long at the most."""

REFERENCES: Final = RuntimeId("references")
"""Stands for a runtime in capabilities that are good for the tenant's references alone, wherever they are kept."""

_PREFIX: Final = "cenotecap"

CAPABILITY_PATTERN: Final = rf"{_PREFIX}\.[\w.=-]+"
"""What must not be in a log."""
_MAX_TEXT: Final = 1024
"""Four times what one needs; nothing beyond that is hashed for a stranger."""

_FOREIGN: Final = "this capability is not one for this runtime"


class CapabilityRight(StrEnum):
    """What the holder of a capability may do with that runtime."""

    READ = "read"
    RUN = "run"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What the gateway vouches for: this holder may do this with this runtime, until then.

    holder: the token that it was made for, so that the audit log can name it.
    issued, expires: seconds since the epoch.
    """

    tenant: TenantId
    runtime: RuntimeId
    holder: TokenId
    rights: frozenset[CapabilityRight]
    issued: int
    expires: int

    def __post_init__(self) -> None:
        if not self.rights:
            raise UsageError("a capability needs at least one right")
        if not 0 < self.expires - self.issued <= MAX_LIFETIME:
            raise UsageError(f"a capability lives from 1 to {MAX_LIFETIME} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeKey:
    """The key of one runtime: what its actor is given when it is bound to it."""

    id: str
    runtime: RuntimeId
    secret: bytes = field(repr=False)

    def sign(self, capability: Capability) -> str:
        """Raises UsageError for a capability of another runtime."""
        if capability.runtime != self.runtime:
            raise UsageError("this is the key of another runtime")
        signed = f"{_PREFIX}.{self.id}.{_encoded(capability)}"
        return f"{signed}.{self._mac(signed)}"

    def verify(self, text: str, *, now: float) -> Capability:
        """What a capability says, once it is known to be the gateway's, for this runtime, and not too old.

        Raises NotAuthenticatedError. Nothing of the text is decoded before its MAC has been checked.
        """
        signed, _, mac = text[:_MAX_TEXT].rpartition(".")
        if not hmac.compare_digest(self._mac(signed).encode(), mac.encode(errors="replace")):
            raise NotAuthenticatedError(_FOREIGN)
        capability = _decoded(signed.rpartition(".")[2])
        if capability.runtime != self.runtime:
            raise NotAuthenticatedError(_FOREIGN)
        if now < capability.issued - MAX_LIFETIME:  # else it would live until the clock is where it was
            raise NotAuthenticatedError(
                "this capability is of a later time than this machine's clock; set the clocks alike, and ask the "
                "gateway for another"
            )
        if now >= capability.expires:
            raise NotAuthenticatedError("this capability has expired; ask the gateway for another")
        return capability

    def for_images(self) -> bytes:
        """The key that images of the runtime's process are sealed with."""
        return hmac.new(self.secret, b"cenote image seals", hashlib.sha256).digest()

    def _mac(self, signed: str) -> str:
        return hmac.new(self.secret, signed.encode(errors="replace"), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKey:
    """What the keys of all runtimes are derived from. It never leaves the gateway."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise UsageError(f"a master key has {KEY_BYTES} bytes, not {len(self.secret)}")

    @property
    def id(self) -> str:
        """Identifies the key, and reveals nothing about it."""
        return self._derived("id")[:4].hex()

    def for_runtime(self, runtime: RuntimeId) -> RuntimeKey:
        return RuntimeKey(id=self.id, runtime=runtime, secret=self._derived(f"runtime\0{runtime}"))

    def for_storage(self) -> bytes:
        """What secrets in the database are sealed with."""
        return self._derived("storage")

    def _derived(self, label: str) -> bytes:
        return hmac.new(self.secret, f"cenote capability\0{label}".encode(), hashlib.sha256).digest()


def verify_any(keys: Iterable[RuntimeKey], text: str, *, now: float) -> Capability:
    """Checks by the key that the capability names: while a master key is changed, an actor has both.

    Raises NotAuthenticatedError, also when it names none of them.
    """
    named = text[:_MAX_TEXT].split(".")[1:2]
    for key in keys:
        if [key.id] == named:
            return key.verify(text, now=now)
    raise NotAuthenticatedError(_FOREIGN)


def claimed_runtime(text: str) -> str:
    """Which runtime a capability says it is for, to find the key by which to check that; empty when it says none."""
    try:
        return _decoded(text[:_MAX_TEXT].split(".")[2]).runtime
    except (IndexError, NotAuthenticatedError):
        return ""


def _encoded(capability: Capability) -> str:
    claims = {
        "tenant": capability.tenant,
        "runtime": capability.runtime,
        "holder": capability.holder,
        "rights": sorted(capability.rights),
        "issued": capability.issued,
        "expires": capability.expires,
    }
    text = json.dumps(claims, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decoded(text: str) -> Capability:
    """Raises NotAuthenticatedError. Where the MAC was right, a gateway of another version wrote what is refused."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return Capability(
            tenant=TenantId(str(claims["tenant"])),
            runtime=RuntimeId(str(claims["runtime"])),
            holder=TokenId(str(claims["holder"])),
            rights=frozenset(map(CapabilityRight, claims["rights"])),
            issued=int(claims["issued"]),
            expires=int(claims["expires"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise NotAuthenticatedError("this capability was signed by a gateway of another version") from None
