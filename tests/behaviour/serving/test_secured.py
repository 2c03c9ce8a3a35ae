"""Endpoints of a secured server: who is admitted at which, and certificates that are replaced while it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.serving.fixtures import authorise
from tests.waiting import PATIENCE

from cenote_security.auth.certificate_authority import COMPONENT_LIFETIME, Purpose, issue, make_authority
from cenote_security.auth.certificates import Certificate, TlsMaterial
from cenote_worker.serving.endpoints import Endpoints, Secured
from cenote_worker.serving.references import LocalReferences
from cenote_worker.serving.server import RuntimeServer

HERE = "127.0.0.1"
NOW = datetime.now(UTC)
LONG_AGO = NOW - COMPONENT_LIFETIME * 2
AUTHORITY = make_authority("Test", LONG_AGO)
OTHER = make_authority("Test", LONG_AGO)  # of the same name: names prove nothing


def material(
    name: str,
    purpose: Purpose,
    by: Certificate = AUTHORITY,
    since: datetime = NOW,
    trusted: Certificate = AUTHORITY,
) -> TlsMaterial:
    own = issue(by, [name], [purpose], since, COMPONENT_LIFETIME)
    return TlsMaterial(own=own, authority=trusted.certificate)


GATEWAY = material("gateway", "client")
MACHINE = material(HERE, "server")
CLIENT = grpc.ssl_channel_credentials(AUTHORITY.certificate)


def showing(shown: TlsMaterial) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(shown.authority, shown.own.key, shown.own.certificate)


def knock(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """The result of a call there."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = (
        grpc.insecure_channel(address, options)
        if credentials is None
        else grpc.secure_channel(address, credentials, options)
    )
    with channel:
        try:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


class Shown:
    """The certificate that a server presents now."""

    def __init__(self, now: TlsMaterial) -> None:
        self.now = now

    def __call__(self) -> TlsMaterial:
        return self.now


def server(secured: Secured) -> RuntimeServer:
    return RuntimeServer(authorise, LocalReferences(room=1 << 20), secured=secured)


@pytest.fixture(scope="module")
def doors() -> Iterator[Endpoints]:
    with closing(server(Secured(material=Shown(MACHINE), clients=True))) as made:
        yield made.start()


def test_the_gateway_gets_in_where_components_do(doors: Endpoints) -> None:
    """Each end knows the other by the platform's authority."""
    assert grpc.StatusCode.OK == knock(doors.components, showing(GATEWAY))


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(None, id="in the clear"),
        pytest.param(CLIENT, id="without a certificate, as clients come"),
        pytest.param(showing(material("gateway", "client", by=OTHER)), id="by another authority"),
        pytest.param(showing(material("gateway", "client", since=LONG_AGO)), id="expired"),
        pytest.param(showing(MACHINE), id="another machine's, which is for servers"),
    ],
)
def test_nobody_else_does(doors: Endpoints, credentials: grpc.ChannelCredentials | None) -> None:
    """The handshake fails, so no call is processed."""
    assert grpc.StatusCode.UNAVAILABLE == knock(doors.components, credentials)


def test_clients_need_no_certificate_at_their_door(doors: Endpoints) -> None:
    """Capabilities identify them; the server has to belong to the platform, and nothing goes in the clear."""
    assert grpc.StatusCode.OK == knock(doors.clients, CLIENT)
    for stranger in (None, grpc.ssl_channel_credentials(OTHER.certificate)):
        assert grpc.StatusCode.UNAVAILABLE == knock(doors.clients, stranger)


def test_a_server_for_components_has_no_other_door() -> None:
    """For platforms whose clients connect through the gateway."""
    with closing(server(Secured(material=Shown(MACHINE), clients=False))) as made:
        assert "" == made.start().clients


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(material(HERE, "server", by=OTHER), id="by another authority"),
        pytest.param(material(HERE, "server", since=LONG_AGO), id="expired"),
        pytest.param(material("10.0.0.1", "server"), id="another machine's"),
        pytest.param(material(HERE, "client"), id="a client's"),
    ],
)
def test_the_gateway_refuses_a_machine_that_is_none(shown: TlsMaterial) -> None:
    """So a process that takes a machine's address gets no capabilities."""
    with closing(server(Secured(material=Shown(shown), clients=False))) as made:
        assert grpc.StatusCode.UNAVAILABLE == knock(made.start().components, showing(GATEWAY))


def test_certificates_and_authorities_are_exchanged_while_it_serves() -> None:
    """Each handshake uses the current ones, at each endpoint; existing connections continue."""
    shown = Shown(MACHINE)
    with closing(server(Secured(material=shown, clients=True))) as made:
        doors = made.start()
        with grpc.secure_channel(doors.components, showing(GATEWAY)) as standing:
            check = health_pb2_grpc.HealthStub(standing).Check
            assert check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            shown.now = material(HERE, "server", by=OTHER, trusted=OTHER)
            anew = material("gateway", "client", by=OTHER, trusted=OTHER)
            assert grpc.StatusCode.OK == knock(doors.components, showing(anew))
            assert grpc.StatusCode.UNAVAILABLE == knock(doors.components, showing(GATEWAY))
            assert grpc.StatusCode.UNAVAILABLE == knock(doors.clients, CLIENT)
            assert check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
