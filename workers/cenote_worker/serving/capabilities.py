"""Who may do what at an actor: by the capabilities that the gateway signs, without asking it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from cenote_security.capability import Right, RuntimeKey, claimed_runtime, verify_any
from cenote_worker.serving import rights as serving

_NAMES: Final[Mapping[Right, serving.Right]] = {Right.READ: "read", Right.RUN: "run", Right.SHARE: "share"}


class CapabilityRights:
    """Carries out `Authorise`. keys: of the runtimes that are served here, by id; changes as they come and go."""

    def __init__(
        self, keys: Mapping[str, Sequence[RuntimeKey]], clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._clock = clock

    def __call__(self, token: str, runtime: str | None) -> serving.Rights:
        """Raises NotAuthenticatedError, in the same words for a runtime that is not here."""
        asked = claimed_runtime(token) if runtime is None else runtime
        capability = verify_any(self._keys.get(asked, ()), token, now=self._clock())
        return to_rights(capability.tenant, capability.rights, capability.holder)


def to_rights(tenant: str, rights: Iterable[Right], token: str) -> serving.Rights:
    return serving.Rights(tenant=tenant, granted=frozenset(_NAMES[right] for right in rights), token=token)
