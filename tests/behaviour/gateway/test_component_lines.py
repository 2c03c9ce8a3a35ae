"""Connections between gateway and machines: which use TLS, what the gateway signs, how clients get their
certificates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.support.gateway.world import World, refused

import cenote
from cenote import SandboxPolicy, Variable
from cenote.gateway.api.platform_service import ClientRoute, ClientRouting
from cenote.gateway.machines.local_nodes import LocalNodes
from cenote.gateway.machines.nodes import RuntimeLocation
from cenote.gateway.machines.ray_agents import signed
from cenote.gateway.tls.certificate_check import check_certificate
from cenote.gateway.tls.certificates import InternalTls
from cenote_security.auth.capability import MasterKey
from cenote_security.auth.certificate_authority import COMPONENT_LIFETIME, make_authority, sign
from cenote_security.auth.certificates import make_request
from cenote_security.errors import UsageError
from cenote_worker.serving.endpoints import Endpoints, Secured

NOW = datetime.now(UTC).replace(microsecond=0)
AUTHORITY = make_authority("Test", NOW)
LINES = InternalTls(AUTHORITY)
EVERYWHERE = InternalTls(AUTHORITY, everywhere=True)
PEM = AUTHORITY.certificate.decode()
SMALL = SandboxPolicy(preload=(), memory="256MiB", snapshots="none", tracking=False)


def test_all_that_leads_off_the_loopback_is_secured() -> None:
    """The process that states a machine's address cannot turn this off."""
    addresses = ["127.0.0.1:1", "localhost:1", "[::1]:1", "10.0.0.1:1", "node.example:1", "[fd00::1]:1"]
    assert [False, False, False, True, True, True] == [LINES.secures(address) for address in addresses]
    assert {True} == {EVERYWHERE.secures(address) for address in addresses}


def asked_for(name: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    )
    wish = x509.SubjectAlternativeName([x509.DNSName(name)])
    request = builder.add_extension(wish, critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def test_a_machine_gets_a_certificate_for_its_own_address_and_no_more() -> None:
    """A server certificate, for a day, for the key that the machine made; the name it requests does not count."""
    key = ec.generate_private_key(ec.SECP256R1())
    given = x509.load_pem_x509_certificate(
        sign(AUTHORITY, asked_for("gateway", key), ["10.0.0.1"], ["server"], NOW)
    )
    names = given.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    purposes = given.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ["10.0.0.1"] == [str(name.value) for name in names]
    assert [ExtendedKeyUsageOID.SERVER_AUTH] == list(purposes)
    assert (key.public_key(), NOW + COMPONENT_LIFETIME) == (given.public_key(), given.not_valid_after_utc)
    assert b"gateway" not in given.public_bytes(serialization.Encoding.DER)


def tampered(request: bytes) -> bytes:
    """The request with one bit of its signature flipped."""
    der = x509.load_pem_x509_csr(request).public_bytes(serialization.Encoding.DER)
    turned = x509.load_der_x509_csr(der[:-1] + bytes([der[-1] ^ 1]))
    return turned.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"nonsense",
        AUTHORITY.certificate,
        tampered(make_request().request),
        asked_for("a", rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        asked_for("a", ec.generate_private_key(ec.SECP384R1())),
    ],
    ids=["nothing", "nonsense", "a certificate", "signed by another key", "RSA", "P-384"],
)
def test_what_is_no_request_is_not_signed(request_: bytes) -> None:
    """The requester has to have the key."""
    with pytest.raises(UsageError, match="asks for no certificate"):
        LINES.sign(request_, "10.0.0.1")


def test_each_node_gets_a_certificate_for_where_the_cluster_says_that_it_is() -> None:
    """A node that sends nonsense, or has left, does not block the others; one that needs none gets none."""
    request = make_request()
    asked = {"bad": b"nonsense", "gone": request.request, "content": b"", "good": request.request}
    given = signed(
        asked, {"bad": "10.0.0.1", "content": "10.0.0.2", "good": "10.0.0.3", "gone": ""}.__getitem__, LINES
    )
    assert ["good"] == list(given)
    check_certificate(
        "it",
        request.answered(given["good"]),
        names=["10.0.0.3"],
        authority=AUTHORITY.certificate,
        now=datetime.now(UTC),
    )


def test_the_gateway_renews_its_own_once_half_of_its_time_is_over() -> None:
    """The gateway runs for longer than a certificate lasts."""
    times = [NOW]
    lines = InternalTls(AUTHORITY, clock=lambda: times[-1])
    first = lines.material()
    assert first == lines.material()
    times.append(NOW + COMPONENT_LIFETIME / 2 + timedelta(minutes=1))
    second = lines.material()
    assert first != second
    assert second == lines.material()


@pytest.mark.parametrize(
    ("lines", "relayed", "public", "clients", "way"),
    [
        (LINES, False, False, "127.0.0.1:9", ClientRoute(address="127.0.0.1:9", authority="")),
        (LINES, False, False, "10.0.0.1:9", ClientRoute(address="10.0.0.1:9", authority=PEM)),
        (EVERYWHERE, False, False, "127.0.0.1:9", ClientRoute(address="127.0.0.1:9", authority=PEM)),
        (EVERYWHERE, False, True, "10.0.0.1:9", ClientRoute(address="10.0.0.1:9", authority=PEM)),
        (EVERYWHERE, False, True, "127.0.0.1:9", None),
        (LINES, True, False, "127.0.0.1:9", None),
        (LINES, False, False, "", None),
    ],
)
def test_clients_go_where_they_can(
    lines: InternalTls, relayed: bool, public: bool, clients: str, way: ClientRoute | None
) -> None:
    """Directly, but never in the clear to another machine; the gateway's loopback is for clients on that machine."""
    place = RuntimeLocation(node="n", doors=Endpoints(components="10.0.0.1:1", clients=clients))
    assert way == ClientRouting(lines, relayed=relayed, public=public).direct(place)


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_a_platform_whose_lines_are_secured(make_world: Callable[..., World], relayed: bool) -> None:
    """Cells and values work as usual; clients know a runtime's server by what the gateway says of it."""
    world = make_world(secured=True, relayed=relayed)
    user = world.user("acme")
    description = user.create("etl", policy=SMALL)
    assert ("" if relayed else world.lines.authority.decode()) == description.authority
    with cenote.connect(user.address, user.token).runtime("etl") as runtime:
        runtime.inject(Variable("x", list(range(10))))
        assert "45" == runtime.execute("sum(x)").value
        shared = runtime.share("x")
        assert 1 == len(user.references().references)
        shared.release()


def test_a_machine_of_another_platform_is_told_nothing(make_world: Callable[..., World]) -> None:
    """Another server listens at the runtime's address: the gateway sends it nothing, the caller gets an error."""
    strangers = InternalTls(make_authority("Cenote", NOW), everywhere=True)
    with ExitStack() as opened:

        def machines(key: MasterKey) -> LocalNodes:
            secured = Secured(material=lambda: strangers.serving("127.0.0.1"), clients=True)
            return opened.enter_context(LocalNodes(key, secured=secured))

        user = make_world(secured=True, relayed=True, machines=machines).user("acme")
        refusal = refused(user.references)
    assert grpc.StatusCode.UNAVAILABLE == refusal.code
    assert "does not answer the platform now" in refusal.text
