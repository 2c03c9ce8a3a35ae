"""TLS between the gateway and the machines: which connections use it, and how each end verifies the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cenote_security.auth.certificate_authority import COMPONENT_LIFETIME, Purpose, issue, sign
from cenote_security.auth.certificates import Certificate, TlsMaterial, is_due
from cenote_security.loopback import host_of, is_loopback

GATEWAY: Final = "gateway"
"""The name in the gateway's certificate. It alone is for a TLS client: those of machines are for servers only."""


def _now() -> datetime:
    return datetime.now(UTC)


class InternalTls:
    """Secures all connections off the loopback. Thread-safe.

    authority: the platform's own, which signs for its components, independent of the certificate for clients.
    everywhere: connections on the loopback use TLS too.
    """

    def __init__(
        self, authority: Certificate, *, everywhere: bool = False, clock: Callable[[], datetime] = _now
    ) -> None:
        self._authority = authority
        self.everywhere = everywhere
        self._clock = clock
        self._lock = threading.Lock()
        self._own: dict[str, TlsMaterial] = {}

    @property
    def authority(self) -> bytes:
        """The authority's certificate, in PEM."""
        return self._authority.certificate

    def secures(self, address: str) -> bool:
        """Whether the connection to `host:port` uses TLS. Decided by the address alone: no peer can avoid TLS."""
        return self.everywhere or not is_loopback(host_of(address))

    def material(self) -> TlsMaterial:
        """The gateway's certificate for machines, and its trusted authority. Renewed after half of its lifetime."""
        return self._current(GATEWAY, "client")

    def serving(self, host: str) -> TlsMaterial:
        """The same for a server in the gateway's own process."""
        return self._current(host, "server")

    def sign(self, request: bytes, host: str) -> bytes:
        """Signs for a machine whose servers listen at `host`. Raises UsageError for an invalid request."""
        return sign(self._authority, request, [host], ["server"], self._clock())

    def _current(self, name: str, purpose: Purpose) -> TlsMaterial:
        with self._lock:
            known, now = self._own.get(name), self._clock()
            if known is None or is_due(known.own.certificate, now):
                own = issue(self._authority, [name], [purpose], now, COMPONENT_LIFETIME)
                known = self._own[name] = TlsMaterial(own=own, authority=self.authority)
            return known
