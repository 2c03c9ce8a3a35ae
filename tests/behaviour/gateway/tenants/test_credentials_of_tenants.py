"""Credentials of a tenant's runtime: used where its jail is, sealed where the gateway stores them, never shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.egress.world import World as Internet
from tests.support.egress.world import site
from tests.support.gateway.world import BARE, World

from cenote.gateway.store.runtimes import Runtimes
from cenote_security.errors import UnavailableError
from cenote_security.network import Allow, Secret
from cenote_worker.runtime import runtime as hosted
from cenote_worker.supervisor.start import JailStarter
from cenote_worker.tenancy.usage import policy_digest
from cenote_worker.wire import policies

VALUE = "Bearer canary-5c0ffee123456789"
ASK = "import urllib.request\nurllib.request.urlopen('https://files.test:{}/').read()"


@pytest.mark.slow
@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_a_runtime_with_a_credential(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, relayed: bool
) -> None:
    """Its jail reaches the host with it, and so does a branch's; no answer shows it, and it is not on disk in the
    clear."""
    monkeypatch.setattr(hosted, "start_jail", JailStarter(Internet).start)
    world = make_world(relayed=relayed)
    with site(tls=True) as served:
        host = f"files.test:{served.port}"
        policy = replace(BARE, isolation="strict", network=Allow([host], credentials={host: Secret(VALUE)}))
        acme = world.user("acme")
        made = acme.create("etl", policy)
        (branch,) = acme.fork("etl", names=["try"])
        for description in (made, branch):
            line = acme.line(description)
            line.welcome()
            result = line.run(ASK.format(served.port))
            assert result.success, result
        assert [f"Authorization: {VALUE}" in head for head in served.heads] == [True, True]
    shown = [str(made), str(branch), str(acme.get("etl")), str(acme.page())]
    assert [host] == list(acme.get("etl").policy.network.destinations)
    world.close()
    on_disk = [path.read_bytes() for path in world.state.path.rglob("*") if path.is_file()]
    assert any(b"sealed:" in content for content in on_disk)
    needles = (VALUE[7:].encode(), VALUE[7:].encode().hex().encode())
    assert [] == [each for each in needles for content in on_disk if each in content]
    assert [] == [text for text in shown if VALUE[7:] in text]


def test_what_was_sealed_with_another_key(database: object, acme: object) -> None:
    """A lost master key is reported, and not taken for a policy without credentials."""
    policy = replace(BARE, network=Allow(["a.test"], credentials={"a.test": Secret(VALUE)}))
    message = policies.from_policy(policy).SerializeToString()
    made = Runtimes(database, bytes(32)).add(acme.id, "etl", policy=message)  # type: ignore[arg-type, attr-defined]
    assert message == Runtimes(database, bytes(32)).by_name(acme.id, "etl").policy  # type: ignore[arg-type, attr-defined]
    assert VALUE not in repr(made)
    with pytest.raises(UnavailableError, match="master key"):
        Runtimes(database, bytes([1]) * 32).by_name(acme.id, "etl")  # type: ignore[arg-type, attr-defined]


def test_a_digest_on_record_says_nothing_of_a_credential() -> None:
    """Otherwise a short password could be guessed from it."""
    digests = {
        policy_digest(replace(BARE, network=Allow(["a.test"], credentials=credentials)))
        for credentials in ({}, {"a.test": Secret("one")}, {"a.test": Secret("two")})
    }
    assert 1 == len(digests)
