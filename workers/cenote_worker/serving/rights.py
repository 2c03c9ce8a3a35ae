"""What the holder of a token may do: decided through a port, once for each stream and each unary call.

A process that serves runtimes decides by the capabilities that the gateway signs, without a call to the gateway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from cenote_security.auth.capability import CapabilityRight, RuntimeKey, claimed_runtime, verify_any
from cenote_security.auth.tokens import Scope
from cenote_security.errors import RejectedError
from cenote_worker.serving.limits import MAX_TOKEN

RightName = Literal["read", "run", "share"]

_MEANING: Final[Mapping[RightName, str]] = {
    "read": "nothing of a runtime is to be seen with it",
    "run": "no code runs, and nothing of a runtime is changed",
    "share": "no values are shared, and no shared ones are used",
}
_SCOPES: Final[Mapping[RightName, Scope]] = {
    "read": Scope.RUNTIMES_READ,
    "run": Scope.RUNTIMES_WRITE,
    "share": Scope.REFERENCES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the holder of a token may do. tenant: the tenant whose references it sees. token: its id, for the record.

    read: read names, values, files and state. run: run code, and change the state. share: make and use references.
    """

    tenant: str
    granted: frozenset[RightName] = frozenset(("read", "run", "share"))
    token: str = ""

    def require(self, right: RightName) -> None:
        """Raises RejectedError."""
        if right not in self.granted:
            granted = ", ".join(sorted(self.granted)) or "nothing"
            raise RejectedError(
                f"this token lets its holder {granted}, not {right}: {_MEANING[right]}; use one with the scope "
                f"{_SCOPES[right].value!r}, or ask the platform's operator for one"
            )


class Authorise(Protocol):
    """The port to the authority on tokens."""

    def __call__(self, token: str, runtime: str | None) -> Rights:
        """Rights for a runtime; for the tenant's references if it is None. token: empty where none came. May block.

        Raises a CenoteError. Another tenant's runtime must look like one that does not exist.
        """


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The token of a call, empty where there is none."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and len(value) <= MAX_TOKEN:
            scheme, _, token = value.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


_NAMES: Final[Mapping[CapabilityRight, RightName]] = {
    CapabilityRight.READ: "read",
    CapabilityRight.RUN: "run",
    CapabilityRight.SHARE: "share",
}


class CapabilityRights:
    """Implements `Authorise`. keys: of the runtimes served here, by id; changes as runtimes are added and removed."""

    def __init__(
        self, keys: Mapping[str, Sequence[RuntimeKey]], clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._clock = clock

    def __call__(self, token: str, runtime: str | None) -> Rights:
        """Raises NotAuthenticatedError, with the same text for an unknown runtime."""
        asked = claimed_runtime(token) if runtime is None else runtime
        capability = verify_any(self._keys.get(asked, ()), token, now=self._clock())
        return to_rights(capability.tenant, capability.rights, capability.holder)


def to_rights(tenant: str, rights: Iterable[CapabilityRight], token: str) -> Rights:
    return Rights(tenant=tenant, granted=frozenset(_NAMES[right] for right in rights), token=token)
