"""The platform's TLS. With clients: its certificates, made in a folder or given, presented and renewed.

A folder that was made here has `authority.pem` (certificate and key, private), `server.pem` (the same, for the
server), and `ca.pem`, the only file for others: clients verify the platform with it. A certificate and its key share
a file so that a crash cannot separate them. Certificates between the gateway and the machines are in no file:
`InternalTls` says which connections use them, and how each end verifies the other.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from cenote.gateway.errors import CertificateError
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.tls.certificate_check import check_certificate, expires_before
from cenote_security.auth.certificate_authority import (
    COMPONENT_LIFETIME,
    Purpose,
    issue,
    make_authority,
    sign,
)
from cenote_security.auth.certificates import Certificate, TlsMaterial, is_due
from cenote_security.auth.secret_files import kept_secret, read_secret_file, replace_file
from cenote_security.errors import CenoteError
from cenote_security.loopback import host_of, is_loopback
from cenote_worker.serving.endpoints import Material, for_clients

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


LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_RENEW_BEFORE: Final = timedelta(days=30)
_KEY_BEGINS: Final = b"-----BEGIN PRIVATE KEY-----"


def kept_authority(folder: Path, *, now: datetime | None = None) -> Certificate:
    """The folder's own authority, made if there is none. Raises what `made_certificates` does."""
    now = now or datetime.now(UTC)
    private = folder / "authority.pem"
    authority = _split(kept_secret(private, lambda: _joined(make_authority("Cenote", now))))
    check_certificate(str(private), authority, now=now)
    _publish(folder / "ca.pem", authority.certificate)
    return authority


def made_certificates(
    folder: Path, names: Sequence[str] = LOOPBACK_NAMES, *, now: datetime | None = None
) -> TlsMaterial:
    """The folder's certificate for clients. It is made if it is missing, lacks a name, or expires within a month.

    names: host names and addresses that clients connect to.
    Raises CertificateError for an authority that has expired, SecretFileError for files that others may read.
    """
    now = now or datetime.now(UTC)
    authority = kept_authority(folder, now=now)
    path = folder / "server.pem"
    own = _split(kept_secret(path, lambda: _joined(issue(authority, names, ["server"], now))))
    if not _is_fit(own, names, authority, now):
        own = issue(authority, names, ["server"], now)
        replace_file(path, _joined(own))
    return TlsMaterial(own=own, authority=authority.certificate)


def given_certificates(
    certificate: Path,
    key: Path,
    authority: Path | None = None,
    *,
    names: Sequence[str] = (),
    now: datetime | None = None,
) -> TlsMaterial:
    """Certificates that the operator provides.

    certificate: with the rest of its chain, if any. names: those that clients will connect to.
    Raises CertificateError that says which file is wrong and how; SecretFileError for a key that others may read.
    """
    own = Certificate(certificate=_public(certificate), key=read_secret_file(key))
    trusted = _public(authority) if authority else b""
    check_certificate(
        str(certificate),
        own,
        key=str(key),
        names=names,
        authority=trusted,
        now=now or datetime.now(UTC),
    )
    return TlsMaterial(own=own, authority=trusted)


def _publish(path: Path, certificate: bytes) -> None:
    """Writes only a changed certificate, so that programs that watch or copy the file see no false change."""
    with suppress(OSError):
        if path.read_bytes() == certificate:
            return
    replace_file(path, certificate, mode=0o644)


def _is_fit(own: Certificate, names: Sequence[str], authority: Certificate, now: datetime) -> bool:
    try:
        check_certificate("", own, names=names, authority=authority.certificate, now=now)
    except CertificateError:
        return False
    return not expires_before(own.certificate, now + _RENEW_BEFORE)


def _public(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(str(path), f"it cannot be read: {error.strerror}") from None


def _joined(certificate: Certificate) -> bytes:
    return certificate.certificate + certificate.key


def _split(content: bytes) -> Certificate:
    certificate, begins, key = content.partition(_KEY_BEGINS)
    return Certificate(certificate=certificate, key=begins + key)


log = logging.getLogger("cenote.gateway")

_RENEW_EVERY: Final = 60.0
"""Seconds between two looks for a newer certificate, when a client connects or asks for the platform's health."""

_WILDCARDS: Final = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """lines: to machines. material: for TLS with clients, and credentials the same for gRPC; None for none.
    authority: a file for clients; empty where they need none of ours. certificates: those that expire, PEM by the
    name in messages.
    """

    lines: InternalTls
    material: Material | None = None
    credentials: grpc.ServerCredentials | None = None
    authority: str = ""
    certificates: Callable[[], dict[str, bytes]] = dict


def transport(options: PlatformOptions) -> Transport:
    """Raises CertificateError, SecretFileError."""
    folder = options.state.certificates
    lines = InternalTls(kept_authority(folder), everywhere=options.tls)
    own = {"the platform's own authority": lines.authority}
    if not options.tls:
        return Transport(lines=lines, certificates=lambda: own)
    authority = ""
    if options.certificate is not None and options.key is not None:
        shown = ShownCertificate(partial(given_certificates, options.certificate, options.key))
    else:
        shown = ShownCertificate(partial(made_certificates, folder, _names(options.host)))
        authority = str(folder / "ca.pem")

    def certificates() -> dict[str, bytes]:
        return own | {"the certificate that clients are shown": shown.material().own.certificate}

    return Transport(
        lines=lines,
        material=shown.material,
        credentials=for_clients(shown.material),
        authority=authority,
        certificates=certificates,
    )


class ShownCertificate:
    """The certificate for clients: renewed without a restart, from new files of the operator or by the platform
    itself.

    made: reads or makes it. If the new one cannot be used, the former one stays in use.
    """

    def __init__(self, made: Callable[[], TlsMaterial], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises what `made` raises."""
        self._made = made
        self._clock = clock
        self._lock = threading.Lock()
        self._shown = made()
        self._looked = clock()
        self._problem = ""

    def material(self) -> TlsMaterial:
        with self._lock:
            if self._clock() - self._looked >= _RENEW_EVERY:
                self._looked = self._clock()
                try:
                    self._shown = self._made()
                    self._problem = ""
                except (CenoteError, OSError) as error:
                    if self._problem != str(error):
                        log.error("the certificate for clients stays as it was: %s", error)
                    self._problem = str(error)
            return self._shown


def called(host: str, address: str) -> tuple[str, str]:
    """The names of a platform for clients on this machine and on others; the second is empty if they are equal.

    A wildcard address is only for listening, and no certificate names it: here it becomes `localhost`, elsewhere the
    machine's name. address: as bound, with the port.
    """
    if host not in _WILDCARDS:
        return address, ""
    port = address.rpartition(":")[2]
    return f"localhost:{port}", f"{socket.gethostname()}:{port}"


def _names(host: str) -> list[str]:
    """The names that clients may use for this machine."""
    names = [*LOOPBACK_NAMES, socket.gethostname(), socket.getfqdn()]
    return list(dict.fromkeys(names if host in _WILDCARDS else [*names, host]))
