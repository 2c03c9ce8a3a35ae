"""Certificates on the side of their owner: keys, signing requests, renewal. Values only.

Keys are on the curve P-256, which every TLS library takes. A key is made where it is used and goes nowhere: what
travels is a request, signed with it, and the certificate that comes back (PKCS #10, RFC 2986).

The library is loaded on first use: each process that serves runtimes loads this module, few see a certificate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from cenote_security.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and the key to it, both in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    def parts(self) -> dict[str, str]:
        """As texts, the key included."""
        return {"certificate": self.certificate.decode("ascii"), "key": self.key.decode("ascii")}

    @classmethod
    def of_parts(cls, parts: Mapping[str, str]) -> Certificate:
        return cls(certificate=parts["certificate"].encode(), key=parts["key"].encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Input of a TLS library. authority: PEM of the authority to trust; empty to trust those of the system."""

    own: Certificate
    authority: bytes

    def record(self) -> bytes:
        """As a text, the key included: for places that are as private as this process."""
        return json.dumps({**self.own.parts(), "authority": self.authority.decode("ascii")}).encode()

    @classmethod
    def of_record(cls, record: bytes) -> TlsMaterial:
        parts: dict[str, str] = json.loads(record)
        return cls(own=Certificate.of_parts(parts), authority=parts["authority"].encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """A fresh key, and the signing request for an authority, in PEM."""

    request: bytes
    key: bytes = field(repr=False)

    def answered(self, certificate: bytes) -> Certificate:
        """The key with the certificate from the authority. Raises UsageError for a certificate of another key."""
        from cryptography import x509

        given = x509.load_pem_x509_certificate(certificate)
        asked = x509.load_pem_x509_csr(self.request)
        if given.public_key() != asked.public_key():
            raise UsageError("this certificate was not made for the key that it was asked for")
        return Certificate(certificate=certificate, key=self.key)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_request() -> CertificateRequest:
    """The request has an empty subject: the authority must know by itself whom the certificate is for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return CertificateRequest(request=request.public_bytes(serialization.Encoding.PEM), key=private_pem(key))


def is_due(pem: bytes, now: datetime) -> bool:
    """Whether half of a certificate's lifetime is over. The other half is left for an authority that is away.

    A certificate that is not valid yet is due too: the clock was set back since it was made.
    """
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not begins <= now < begins + (ends - begins) / 2
