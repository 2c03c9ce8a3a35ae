"""The certificate of a node: its key is made here, the gateway signs, and the node's hosts find both in the store.

There is one for all processes of a node, which share all jails of the node anyway: a host that replaces another
serves at once, also while the gateway is away. Neither touches a disk, and the key never leaves the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from cenote_security.auth.certificates import CertificateRequest, TlsMaterial, is_due, make_request
from cenote_security.errors import UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient

KEY: Final = "certificate"
"""The key in the descriptor store."""

LOOK_EVERY: Final = timedelta(seconds=2)
"""The certificate that hosts use is at most this much older than the stored one."""


def _now() -> datetime:
    return datetime.now(UTC)


class NodeCertificate:
    """Used by the node's agent. Thread-safe."""

    def __init__(self, descriptor_store: DescriptorStoreClient, clock: Callable[[], datetime] = _now) -> None:
        self._descriptor_store = descriptor_store
        self._clock = clock
        self._lock = threading.Lock()
        self._there = threading.Event()
        self._asked: CertificateRequest | None = None
        self._material = _kept(descriptor_store)
        if self._material is not None:  # this agent has been started again
            self._there.set()

    def request(self, authority: bytes) -> bytes:
        """The request to be signed now; empty while there is a certificate of this authority and half of its time
        left.

        Call it regularly: it puts the certificate again when the descriptor store was replaced.
        """
        with self._lock:
            if self._material is not None and self._material.authority == authority:
                if _kept(self._descriptor_store) != self._material:
                    self._descriptor_store.put(KEY, self._material.record())
                if not is_due(self._material.own.certificate, self._clock()):
                    return b""
            self._asked = self._asked or make_request()
            return self._asked.request

    def take(self, certificate: bytes, authority: bytes) -> None:
        """Takes the signed certificate, and its authority. Raises UsageError for a certificate of another key."""
        with self._lock:
            if self._asked is None:
                return  # another caller was faster
            self._material = TlsMaterial(own=self._asked.answered(certificate), authority=authority)
            self._descriptor_store.put(KEY, self._material.record())
            self._asked = None
        self._there.set()

    def wait(self, seconds: float) -> bool:
        """Whether there is one within that time. False as soon as the node ends."""
        return self._there.wait(seconds) and self._material is not None

    def give_up(self) -> None:
        """The node ends: threads that wait for a certificate return."""
        self._there.set()


class HostCertificate:
    """The same, for the node's hosts. Thread-safe.

    It is needed for each connection, before the client is authenticated, and is looked up once in some seconds.
    """

    def __init__(self, descriptor_store: DescriptorStoreClient, clock: Callable[[], datetime] = _now) -> None:
        self._descriptor_store = descriptor_store
        self._clock = clock
        self._material: TlsMaterial | None = None
        self._looked: datetime | None = None

    def __call__(self) -> TlsMaterial:
        """Raises UnavailableError where there is none."""
        now = self._clock()
        # After the clock was set back, this must not wait until the former time.
        if self._looked is None or not timedelta() <= now - self._looked < LOOK_EVERY:
            self._look()
            self._looked = now
        if self._material is None:
            raise UnavailableError("this node has no certificate yet; the gateway signs it within seconds")
        return self._material

    def _look(self) -> None:
        try:
            self._material = _kept(self._descriptor_store) or self._material
        except UnavailableError:
            return  # a store that has ended is replaced, and filled again, within seconds


def _kept(descriptor_store: DescriptorStoreClient) -> TlsMaterial | None:
    kept = descriptor_store.get(KEY)
    return TlsMaterial.of_record(kept.record) if kept is not None else None
