"""Certificate authorities, and the certificates that they give. Values only: PEM in, PEM out.

The keys are on the curve P-256, which every TLS library takes. An authority gives certificates for servers and
clients and for no further authorities.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cenote_security.auth.certificates import Certificate, private_pem
from cenote_security.errors import UsageError

AUTHORITY_LIFETIME: Final = timedelta(days=5 * 365)
CERTIFICATE_LIFETIME: Final = timedelta(days=365)
COMPONENT_LIFETIME: Final = timedelta(days=1)
"""Of the certificates of components. They are renewed after half of it, so none needs to be revoked."""
_CLOCK_SKEW: Final = timedelta(minutes=5)
"""Certificates are valid from a little before they were made: clocks of machines differ."""

Purpose = Literal["server", "client"]

_PURPOSES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


def make_authority(name: str, now: datetime) -> Certificate:
    """A certificate that signs others. name: for people who look at it. now: with its time zone."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return Certificate(certificate=_signed(builder, key), key=private_pem(key))


def issue(
    authority: Certificate,
    names: Sequence[str],
    purposes: Sequence[Purpose],
    now: datetime,
    lifetime: timedelta = CERTIFICATE_LIFETIME,
) -> Certificate:
    """A certificate for these host names and addresses, the first of which is its common name too.

    Raises UsageError without names or purposes.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certified(authority, key.public_key(), names, purposes, now, lifetime)
    return Certificate(certificate=certificate, key=private_pem(key))


def sign(
    authority: Certificate, request: bytes, names: Sequence[str], purposes: Sequence[Purpose], now: datetime
) -> bytes:
    """The certificate of a component that has made its key itself, for a day: see `make_request`.

    Whatever else the request asks for is not given: names and purposes are the signer's to know.
    Raises UsageError for a request that its own key has not signed, or with a key of another kind.
    """
    try:
        asked = x509.load_pem_x509_csr(request)
        key = asked.public_key() if asked.is_signature_valid else None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(
            "this asks for no certificate: a request in PEM is signed with its own key, on P-256"
        )
    return _certified(authority, key, names, purposes, now, COMPONENT_LIFETIME)


def _certified(
    authority: Certificate,
    key: ec.EllipticCurvePublicKey,
    names: Sequence[str],
    purposes: Sequence[Purpose],
    now: datetime,
    lifetime: timedelta,
) -> bytes:
    if not names or not purposes:
        raise UsageError("a certificate needs a name and a purpose")
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = _private_key(authority.key)
    lifetime = min(lifetime, signer.not_valid_after_utc - now)
    builder = (
        _builder(_subject(names[0]), signer.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_PURPOSES[purpose] for purpose in purposes]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    )
    return _signed(builder, signing_key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError("the key of an authority made here is on an elliptic curve; this one is not")
    return key


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # 64 is the most that X.520 allows


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
