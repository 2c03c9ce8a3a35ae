"""Whether a certificate fits its purpose, for better errors than a failed handshake gives. Values only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from cenote.gateway.errors import CertificateError
from cenote_security.auth.certificates import Certificate

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_certificate(
    what: str,
    given: Certificate,
    *,
    key: str = "",
    names: Sequence[str] = (),
    authority: bytes = b"",
    now: datetime,
) -> None:
    """Raises CertificateError with the first problem and what to do.

    what: how errors call it. key: how they call its key, if that is in a file of its own. names: host names and
    addresses that clients will connect to; each must be in it.
    authority: PEM of the authorities that the other side trusts; empty when they are not known here.
    """
    chain = _chain(what, given.certificate)
    _check_key(key or what, chain[0], given.key)
    for certificate in chain:
        _check_time(what, certificate, now)
    for name in names:
        _check_name(what, chain[0], name)
    if authority:
        _check_signer(what, chain, _chain(f"the authority of {what}", authority))


def expiry(pem: bytes) -> datetime:
    """The earliest expiry of a certificate in a PEM file. Raises ValueError if there is no certificate."""
    return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem))


def names_of(pem: bytes) -> list[str]:
    """The names and addresses that a certificate is for; wildcards are not expanded."""
    return [str(entry) for entry in _listed(_chain("", pem)[0])]


def expires_before(pem: bytes, moment: datetime) -> bool:
    """Whether a certificate of a PEM file expires by then."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc <= moment


def _chain(what: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError(what, "it holds no certificate in PEM; is it the key, or DER?") from None


def _check_key(what: str, certificate: x509.Certificate, pem: bytes) -> None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise CertificateError(
            what, "the key is locked with a password; give it without one, mode 0600"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(what, "this is no private key in PEM") from None
    if _spki(key.public_key()) != _spki(certificate.public_key()):
        raise CertificateError(what, "the key belongs to another certificate; give the one it was made with")


def _check_time(what: str, certificate: x509.Certificate, now: datetime) -> None:
    name = certificate.subject.rfc4514_string()
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            what, f"{name} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; renew it"
        )
    if now < certificate.not_valid_before_utc:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise CertificateError(what, f"{name} is good from {since} on only; is this machine's clock right?")


def _check_name(what: str, certificate: x509.Certificate, name: str) -> None:
    listed = list(_listed(certificate))
    if not any(_covers(entry, name) for entry in listed):
        has = ", ".join(map(str, listed)) or "no name at all"
        raise CertificateError(what, f"it is not for {name!r} but for {has}; get one with that name in it")


def _listed(certificate: x509.Certificate) -> Iterator[str | _Address]:
    """Alternative names only: clients have ignored common names for years."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    yield from names.get_values_for_type(x509.DNSName)
    yield from (ip for ip in names.get_values_for_type(x509.IPAddress) if isinstance(ip, _Address))


def _covers(entry: str | _Address, name: str) -> bool:
    """A wildcard stands for one whole label, as in RFC 6125."""
    if not isinstance(entry, str):
        return entry == _address(name)
    entry, name = entry.lower(), name.lower()
    if entry.startswith("*."):
        return name.partition(".")[2] == entry[2:]
    return entry == name


def _address(name: str) -> _Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _check_signer(what: str, chain: list[x509.Certificate], authorities: list[x509.Certificate]) -> None:
    """The last given certificate must be signed by one of the authorities, and each other one by the next."""
    for certificate, signer in pairwise(chain):
        if not _is_by(certificate, signer):
            raise CertificateError(
                what, "its chain is not in order: each certificate is followed by its signer's"
            )
    if not any(_is_by(chain[-1], authority) or chain[-1] == authority for authority in authorities):
        raise CertificateError(what, "it was not signed by the authority that was given with it")


def _is_by(certificate: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _spki(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
