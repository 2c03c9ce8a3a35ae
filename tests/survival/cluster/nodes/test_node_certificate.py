"""A node's certificate: requested, accepted, stored for its hosts, and renewed, whichever process restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cenote_security.auth.certificate_authority import COMPONENT_LIFETIME, make_authority, sign
from cenote_security.auth.certificates import Certificate, make_request
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, connect, ensure_store
from cenote_worker.node.certificate import LOOK_EVERY, HostCertificate, NodeCertificate

AUTHORITY = make_authority("Test", datetime.now(UTC))


class World:
    """A node's descriptor store, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = datetime.now(UTC)
        ensure_store(folder)
        self.descriptor_store = DescriptorStoreClient(folder)

    def end_store(self) -> None:
        self.descriptor_store.shut_down()
        with suppress(OSError):
            while True:
                connect(self.folder).close()

    def agent(self) -> NodeCertificate:
        return NodeCertificate(self.descriptor_store, lambda: self.now)

    def host(self) -> HostCertificate:
        return HostCertificate(self.descriptor_store, lambda: self.now)

    def sign(self, agent: NodeCertificate, authority: Certificate = AUTHORITY) -> None:
        """Signs as the gateway does."""
        request = agent.request(authority.certificate)
        agent.take(sign(authority, request, ["10.0.0.1"], ["server"], self.now), authority.certificate)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "keeper")
    yield world
    world.descriptor_store.shut_down()


def test_hosts_have_what_was_signed(world: World) -> None:
    """All hosts of the node have the same one; before, they cannot serve."""
    agent = world.agent()
    assert not agent.wait(0.0)
    with pytest.raises(UnavailableError, match="no certificate yet"):
        world.host()()
    world.sign(agent)
    assert agent.wait(0.0)
    assert world.host()() == world.host()()
    assert AUTHORITY.certificate == world.host()().authority


def test_an_agent_that_is_started_again_asks_for_nothing(world: World) -> None:
    """Its hosts continue to serve, and the gateway may be away."""
    world.sign(world.agent())
    again = world.agent()
    assert again.wait(0.0)
    assert b"" == again.request(AUTHORITY.certificate)


def test_a_certificate_is_renewed_with_another_key_once_half_of_its_time_is_over(world: World) -> None:
    """Hosts have the new one by their next handshake."""
    agent, host = world.agent(), world.host()
    world.sign(agent)
    first = host()
    world.now += COMPONENT_LIFETIME / 2 - timedelta(hours=1)
    assert b"" == agent.request(AUTHORITY.certificate)
    world.now += timedelta(hours=1)
    assert agent.request(AUTHORITY.certificate)
    assert first == host()  # until there is another one
    world.sign(agent)
    world.now += LOOK_EVERY
    assert {first.own.certificate, first.own.key}.isdisjoint({host().own.certificate, host().own.key})


def test_a_clock_that_is_set_back_renews_it(world: World) -> None:
    """The certificate is not yet valid at that time; hosts check at once, not when the old time is reached again."""
    agent, host = world.agent(), world.host()
    world.sign(agent)
    first = host()
    world.now -= timedelta(days=365)
    assert agent.request(AUTHORITY.certificate)
    world.sign(agent)
    assert first.own.certificate != host().own.certificate


def test_the_same_is_asked_until_it_is_answered(world: World) -> None:
    """The requester may have failed before the answer; an answer that comes too late changes nothing."""
    agent = world.agent()
    request = agent.request(AUTHORITY.certificate)
    assert request == agent.request(AUTHORITY.certificate)
    twice = [sign(AUTHORITY, request, ["10.0.0.1"], ["server"], world.now) for _ in range(2)]
    for certificate in twice:
        agent.take(certificate, AUTHORITY.certificate)
    assert twice[0] == world.host()().own.certificate


def test_another_authority_has_it_renewed(world: World) -> None:
    """When the platform's own was replaced, hosts trust the new one and are known by it, within seconds."""
    agent, host = world.agent(), world.host()
    world.sign(agent)
    assert AUTHORITY.certificate == host().authority
    other = make_authority("Test", world.now)
    world.sign(agent, other)
    assert (
        AUTHORITY.certificate == host().authority
    )  # no descriptor store call for each unauthenticated client
    world.now += LOOK_EVERY
    assert other.certificate == host().authority


def test_a_new_store_gets_it_back(world: World) -> None:
    """At the next sweep of the gateway, without a new signature; running hosts still have it."""
    agent, host = world.agent(), world.host()
    world.sign(agent)
    had = host()
    world.end_store()
    world.now += LOOK_EVERY
    assert had == host()
    ensure_store(world.folder)
    assert b"" == agent.request(AUTHORITY.certificate)
    assert had == world.host()()


def test_a_certificate_for_another_key_is_refused(world: World) -> None:
    """It could not be used; the request stays open."""
    agent = world.agent()
    request = agent.request(AUTHORITY.certificate)
    foreign = sign(AUTHORITY, make_request().request, ["10.0.0.1"], ["server"], world.now)
    with pytest.raises(UsageError, match="key"):
        agent.take(foreign, AUTHORITY.certificate)
    assert request == agent.request(AUTHORITY.certificate)


def test_nobody_waits_for_a_certificate_of_a_node_that_ends(world: World) -> None:
    """The gateway that would have signed it may end first."""
    agent = world.agent()
    agent.give_up()
    assert not agent.wait(60.0)


def test_a_key_is_not_shown(world: World) -> None:
    """Neither in a log line nor in a traceback."""
    world.sign(world.agent())
    assert "PRIVATE" not in repr(world.host()())
    assert "PRIVATE" not in repr(make_request())
