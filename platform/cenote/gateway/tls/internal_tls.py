"""The lines between the gateway and the machines: which of them are secured, and by what each end knows the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cenote_security.auth.certificate_authority import COMPONENT_LIFETIME, Purpose, issue, sign
from cenote_security.auth.certificates import Certificate, TlsMaterial, is_due
from cenote_security.loopback import host_of, is_loopback

GATEWAY: Final = "gateway"
"""What its certificate calls it, the only one that is for clients: machines have theirs for servers alone."""


def _now() -> datetime:
    return datetime.now(UTC)


class InternalTls:
    """All that lead off the loopback are secured. Thread-safe.

    authority: the platform's own, which signs for its components whatever certificate is shown to clients.
    everywhere: lines on the loopback are secured too.
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
        """Its certificate, in PEM."""
        return self._authority.certificate

    def secures(self, address: str) -> bool:
        """Whether the line to `host:port` is secured. Decided by the address alone: nobody else can have it in the
        clear.
        """
        return self.everywhere or not is_loopback(host_of(address))

    def material(self) -> TlsMaterial:
        """What the gateway shows to machines, and trusts of them. Another one once half of its time is over."""
        return self._current(GATEWAY, "client")

    def serving(self, host: str) -> TlsMaterial:
        """The same of a server in the gateway's own process."""
        return self._current(host, "server")

    def sign(self, request: bytes, host: str) -> bytes:
        """The certificate of a machine whose servers listen at `host`. Raises UsageError for what is no request."""
        return sign(self._authority, request, [host], ["server"], self._clock())

    def _current(self, name: str, purpose: Purpose) -> TlsMaterial:
        with self._lock:
            known, now = self._own.get(name), self._clock()
            if known is None or is_due(known.own.certificate, now):
                own = issue(self._authority, [name], [purpose], now, COMPONENT_LIFETIME)
                known = self._own[name] = TlsMaterial(own=own, authority=self.authority)
            return known
