"""The certificates of a platform: made in a folder, or given. Keys are in private files.

A folder that was made here has `authority.pem` (certificate and key, private), `server.pem` (the same, for what
clients connect to), and `ca.pem`, the only one for others: by it, clients know the platform. A certificate and its
key share a file so that no crash can part them. What components show each other is in no file, see `ComponentLines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cenote.gateway.certificate_check import check_certificate, expires_before
from cenote.gateway.errors import CertificateError
from cenote_security.certificate_authority import issue, make_authority
from cenote_security.certificates import Certificate, TlsMaterial
from cenote_security.secret_files import kept_secret, read_secret_file, replace_file

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
    """The folder's certificate for clients to see. It is made if it is missing, lacks a name, or expires in a month.

    names: host names and addresses that they connect to.
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
    """Certificates that somebody else made.

    certificate: with the rest of its chain, if it has one. names: that clients will connect to.
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
    """Only what is new: whoever watches or copies the file is told of nothing that is as it was."""
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
