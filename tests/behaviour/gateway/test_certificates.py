"""Certificates: generated ones complete a handshake, bad ones are refused with a reason before a handshake."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cenote.gateway.errors import CertificateError
from cenote.gateway.tls.certificate_check import check_certificate
from cenote.gateway.tls.certificates import (
    LOOPBACK_NAMES,
    InternalTls,
    given_certificates,
    kept_authority,
    made_certificates,
)
from cenote_security.auth.certificate_authority import (
    AUTHORITY_LIFETIME,
    CERTIFICATE_LIFETIME,
    issue,
    make_authority,
)
from cenote_security.auth.certificates import Certificate, TlsMaterial
from cenote_security.auth.secret_files import create_secret_file, replace_file
from cenote_security.errors import SecretFileError, UsageError

NOW = datetime.now(UTC).replace(microsecond=0)
AUTHORITY = make_authority("Test", NOW)
OTHER = make_authority("Test", NOW)  # of the same name: names prove nothing
SERVER = issue(AUTHORITY, ["cenote.example", "*.pods.example", "10.0.0.1", "::1"], ["server"], NOW)


def context(own: Certificate | None, trusted: bytes, purpose: ssl.Purpose, folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(purpose, cadata=trusted.decode())
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    if own is not None:
        path = folder / f"{purpose.name}.pem"
        path.unlink(missing_ok=True)
        create_secret_file(path, own.certificate + own.key)
        made.load_cert_chain(path)
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory. Raises ssl.SSLError when one side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for side in sides * 3:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert ["TLSv1.3", "TLSv1.3"] == [side.version() for side in sides]
    for side in sides:
        side.do_handshake()  # returns only when it is done


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_made_certificates_shake_hands_both_ways(tmp_path: Path, name: str) -> None:
    """mTLS: each side shows a certificate and requires one, by the strictest rules of OpenSSL."""
    server = made_certificates(tmp_path / "tls")
    client = InternalTls(kept_authority(tmp_path / "tls")).material()
    shake_hands(
        context(server.own, server.authority, ssl.Purpose.CLIENT_AUTH, tmp_path),
        context(client.own, client.authority, ssl.Purpose.SERVER_AUTH, tmp_path),
        name,
    )


def test_a_client_without_a_certificate_of_this_platform_is_refused(tmp_path: Path) -> None:
    """Without any, with one of another authority, and with a server certificate."""
    server = context(SERVER, AUTHORITY.certificate, ssl.Purpose.CLIENT_AUTH, tmp_path)
    for own in (None, issue(OTHER, ["gateway"], ["client"], NOW), SERVER):
        client = context(own, AUTHORITY.certificate, ssl.Purpose.SERVER_AUTH, tmp_path)
        with pytest.raises(ssl.SSLError):
            shake_hands(server, client, "cenote.example")


def test_a_server_of_another_platform_is_refused(tmp_path: Path) -> None:
    """By its signer, by its name, by its purpose."""
    fine = issue(AUTHORITY, ["gateway"], ["client"], NOW)
    client = context(fine, AUTHORITY.certificate, ssl.Purpose.SERVER_AUTH, tmp_path)
    for own, name in (
        (issue(OTHER, ["cenote.example"], ["server"], NOW), "cenote.example"),
        (SERVER, "evil.example"),
        (fine, "gateway"),
    ):
        server = context(own, AUTHORITY.certificate, ssl.Purpose.CLIENT_AUTH, tmp_path)
        with pytest.raises(ssl.SSLError):
            shake_hands(server, client, name)


def test_an_authority_makes_no_authorities(tmp_path: Path) -> None:
    """A component's stolen certificate cannot sign others, and no second level can be signed."""
    signer = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    constraints = signer.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert x509.BasicConstraints(ca=True, path_length=0) == constraints
    forged = issue(SERVER, ["cenote.example"], ["server"], NOW)
    chained = replace(forged, certificate=forged.certificate + SERVER.certificate)
    server = context(chained, AUTHORITY.certificate, ssl.Purpose.CLIENT_AUTH, tmp_path)
    client = context(None, AUTHORITY.certificate, ssl.Purpose.SERVER_AUTH, tmp_path)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client, "cenote.example")


def test_lifetimes_are_sane() -> None:
    """A certificate does not outlive its authority, and starts a little in the past because clocks differ."""
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=10)
    certificates = [
        x509.load_pem_x509_certificate(pem.certificate)
        for pem in (AUTHORITY, SERVER, issue(AUTHORITY, ["a"], ["server"], late))
    ]
    ends = [certificate.not_valid_after_utc for certificate in certificates]
    assert [NOW + AUTHORITY_LIFETIME, NOW + CERTIFICATE_LIFETIME, NOW + AUTHORITY_LIFETIME] == ends
    assert {True} == {certificate.not_valid_before_utc < NOW for certificate in certificates[:2]}
    assert 3 == len({certificate.serial_number for certificate in certificates})


def test_a_certificate_for_nothing_is_refused() -> None:
    """Without a name no client could connect; without a purpose the certificate is of no use."""
    for names, purposes in (([], ["server"]), (["a"], [])):
        with pytest.raises(UsageError):
            issue(AUTHORITY, names, purposes, NOW)  # type: ignore[arg-type]


def locked(certificate: Certificate) -> Certificate:
    key = serialization.load_pem_private_key(certificate.key, password=None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    return replace(certificate, key=pem)


@pytest.mark.parametrize(
    ("given", "names", "at", "reason"),
    [
        (SERVER, ["cenote.example"], NOW + CERTIFICATE_LIFETIME * 2, "expired on .*renew it"),
        (SERVER, [], NOW - timedelta(hours=1), "clock right"),
        (SERVER, ["evil.example"], NOW, r"not for 'evil\.example' but for cenote\.example"),
        (SERVER, ["a.b.pods.example"], NOW, "not for"),
        (SERVER, ["pods.example"], NOW, "not for"),
        (SERVER, ["10.0.0.2"], NOW, "not for"),
        (replace(SERVER, key=OTHER.key), [], NOW, "belongs to another certificate"),
        (replace(SERVER, key=b"nonsense"), [], NOW, "no private key"),
        (replace(SERVER, certificate=SERVER.key), [], NOW, "no certificate in PEM"),
        (locked(SERVER), [], NOW, "password"),
        (issue(OTHER, ["a"], ["server"], NOW), [], NOW, "not signed by the authority"),
        (
            replace(SERVER, certificate=SERVER.certificate + OTHER.certificate),
            [],
            NOW,
            "chain is not in order",
        ),
    ],
)
def test_what_is_wrong_with_a_given_certificate_is_said(
    given: Certificate, names: Sequence[str], at: datetime, reason: str
) -> None:
    """The error is raised before a handshake fails with a less clear one."""
    with pytest.raises(CertificateError, match=reason) as caught:
        check_certificate("server.pem", given, names=names, authority=AUTHORITY.certificate, now=at)
    assert str(caught.value).startswith("server.pem: ")


@pytest.mark.parametrize(
    "name", ["cenote.example", "CENOTE.example", "pod-1.pods.example", "10.0.0.1", "::1", "0::1"]
)
def test_names_that_a_certificate_covers(name: str) -> None:
    """Case does not matter, a wildcard matches one label, an address has several spellings."""
    check_certificate("it", SERVER, names=[name], authority=AUTHORITY.certificate, now=NOW)


def material(folder: Path, *names: str, now: datetime = NOW) -> TlsMaterial:
    return made_certificates(folder, names or LOOPBACK_NAMES, now=now)


def test_made_certificates_stay(tmp_path: Path) -> None:
    """A second start uses those of the first; only `ca.pem` is readable by others."""
    made = material(tmp_path)
    assert made == material(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert {"authority.pem": 0o600, "server.pem": 0o600, "ca.pem": 0o644} == modes
    assert made.authority == (tmp_path / "ca.pem").read_bytes()
    assert b"PRIVATE" not in made.authority


def test_what_is_public_is_written_when_it_changes(tmp_path: Path) -> None:
    """Not at each start: a process that copies or watches `ca.pem` sees no change when there is none."""
    public = tmp_path / "ca.pem"
    kept_authority(tmp_path, now=NOW)
    first = public.stat().st_ino
    kept_authority(tmp_path, now=NOW)
    assert first == public.stat().st_ino
    public.write_bytes(b"another's")
    authority = kept_authority(tmp_path, now=NOW)
    assert authority.certificate == public.read_bytes()


def test_a_key_that_is_wrong_is_named(tmp_path: Path) -> None:
    """The error names the key's own file."""
    (tmp_path / "own.pem").write_bytes(SERVER.certificate)
    replace_file(tmp_path / "key.pem", b"nonsense")
    with pytest.raises(CertificateError, match=r"key\.pem: this is no private key"):
        given_certificates(tmp_path / "own.pem", tmp_path / "key.pem", now=NOW)


@pytest.mark.parametrize(
    ("days", "names", "renewed"),
    [(334, (), False), (336, (), True), (400, (), True), (0, ("cenote.example",), True)],
)
def test_certificates_are_renewed_in_time(
    tmp_path: Path, days: int, names: tuple[str, ...], renewed: bool
) -> None:
    """A month before they expire, after they have, and when a name is missing; clients need nothing new."""
    old = material(tmp_path)
    new = material(tmp_path, *names, now=NOW + timedelta(days=days))
    assert renewed == (old.own != new.own)
    assert old.authority == new.authority
    assert new == material(tmp_path, *names, now=NOW + timedelta(days=days))


def test_an_authority_that_is_over_is_not_replaced_in_secret(tmp_path: Path) -> None:
    """Every client trusts the old one, so an operator has to decide."""
    material(tmp_path)
    with pytest.raises(CertificateError, match=r"authority\.pem.*expired"):
        material(tmp_path, now=NOW + AUTHORITY_LIFETIME + timedelta(days=1))


def test_a_made_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """It may have leaked."""
    material(tmp_path)
    (tmp_path / "server.pem").chmod(0o644)
    with pytest.raises(SecretFileError, match="others may read"):
        material(tmp_path)


def test_given_certificates_are_used_as_they_are(tmp_path: Path) -> None:
    """Their names and their signer are checked, if those are known."""
    certificate, key, authority = (tmp_path / name for name in ("a.crt", "a.key", "ca.crt"))
    certificate.write_bytes(SERVER.certificate)
    authority.write_bytes(AUTHORITY.certificate)
    create_secret_file(key, SERVER.key)
    given = given_certificates(certificate, key, authority, names=["cenote.example"], now=NOW)
    assert TlsMaterial(own=SERVER, authority=AUTHORITY.certificate) == given
    assert b"" == given_certificates(certificate, key).authority


def remove_certificate(folder: Path) -> None:
    (folder / "a.crt").unlink()


def expose_key(folder: Path) -> None:
    (folder / "a.key").chmod(0o640)


def exchange_authority(folder: Path) -> None:
    (folder / "ca.crt").write_bytes(OTHER.certificate)


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (remove_certificate, CertificateError, r"a\.crt: it cannot be read: No such file"),
        (expose_key, SecretFileError, r"a\.key.*others may read"),
        (exchange_authority, CertificateError, r"a\.crt: it was not signed"),
    ],
)
def test_given_files_that_are_wrong(
    tmp_path: Path, damage: Callable[[Path], None], kind: type[Exception], reason: str
) -> None:
    """Each error names the file."""
    (tmp_path / "a.crt").write_bytes(SERVER.certificate)
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    create_secret_file(tmp_path / "a.key", SERVER.key)
    damage(tmp_path)
    with pytest.raises(kind, match=reason):
        given_certificates(tmp_path / "a.crt", tmp_path / "a.key", tmp_path / "ca.crt", now=NOW)


def test_keys_are_not_shown() -> None:
    """Not in the repr of a certificate, which may end up in a log line or a traceback."""
    assert "PRIVATE" not in repr(TlsMaterial(own=SERVER, authority=b""))
