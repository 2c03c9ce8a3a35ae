"""How a caller's credential becomes rights, at the gateway and at an actor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cenote.gateway.store.database import Database
from cenote.gateway.store.runtimes import RuntimeRecord, Runtimes
from cenote.gateway.store.stores import CAPABILITY_SECONDS, Access
from cenote.gateway.store.tenants import Tenant, Tokens
from cenote.gateway.values.principal import Principal
from cenote_security.auth.capability import MasterKey
from cenote_security.errors import NotAuthenticatedError, RejectedError, UnknownRuntimeError
from cenote_security.ids import RuntimeId, new_runtime_id
from cenote_worker.serving.rights import CapabilityRights, Rights

KEY = MasterKey(secret=b"m" * 32)


@pytest.fixture
def tokens(database: Database) -> Tokens:
    return Tokens(database)


@pytest.fixture
def access(database: Database, tokens: Tokens, clock: Callable[[], float]) -> Access:
    return Access(tokens, Runtimes(database, bytes(32)), KEY, clock)


@pytest.fixture
def etl(database: Database, acme: Tenant) -> RuntimeRecord:
    return Runtimes(database, bytes(32)).add(acme.id, "etl")


def principal(tokens: Tokens, tenant: Tenant, *scopes: str) -> Principal:
    return tokens.authenticate(tokens.issue(tenant.id, scopes).text)


@pytest.mark.parametrize(
    ("scopes", "granted"),
    [
        (["runtimes:read"], {"read"}),
        (["runtimes:write", "references"], {"run", "share"}),
        (["admin", "teams"], set()),
    ],
)
def test_scopes_become_rights(
    access: Access, tokens: Tokens, acme: Tenant, etl: RuntimeRecord, scopes: list[str], granted: set[str]
) -> None:
    """Each scope gives its own right and no other."""
    token = tokens.issue(acme.id, scopes)
    rights = Rights(tenant=acme.id, granted=frozenset(granted), token=token.id)  # type: ignore[arg-type]
    assert rights == access.authorise(token.text, etl.id) == access.authorise(token.text, None)


def test_a_token_opens_no_runtime_of_others(
    access: Access, tokens: Tokens, rival: Tenant, etl: RuntimeRecord
) -> None:
    """A token opens no runtime of another tenant, and the answer does not reveal whether one exists."""
    token = tokens.issue(rival.id).text
    remarks = set()
    for runtime in (etl.id, new_runtime_id()):
        with pytest.raises(UnknownRuntimeError) as caught:
            access.authorise(token, runtime)
        remarks.add(str(caught.value).replace(runtime, "ID"))
    assert 1 == len(remarks)
    with pytest.raises(NotAuthenticatedError):
        access.authorise("", etl.id)


def test_a_capability_opens_its_runtime_at_the_actor(
    access: Access, tokens: Tokens, acme: Tenant, etl: RuntimeRecord, clock: Callable[[], float]
) -> None:
    """It carries the token's rights, also covers its tenant's references, and is valid for minutes."""
    holder = principal(tokens, acme, "runtimes:write", "references")
    text, expires = access.capability(holder, etl)
    actor = CapabilityRights({etl.id: [KEY.for_runtime(etl.id)]}, clock)
    rights = Rights(tenant=acme.id, granted=frozenset({"run", "share"}), token=holder.token)
    assert rights == actor(text, etl.id) == actor(text, None)
    assert clock() + CAPABILITY_SECONDS == expires
    late = CapabilityRights({etl.id: [KEY.for_runtime(etl.id)]}, lambda: float(expires))
    with pytest.raises(NotAuthenticatedError, match="has expired"):
        late(text, etl.id)


def test_a_capability_opens_nothing_else(
    access: Access,
    tokens: Tokens,
    acme: Tenant,
    rival: Tenant,
    etl: RuntimeRecord,
    clock: Callable[[], float],
) -> None:
    """Another runtime at the same actor, a missing runtime, and a bearer token get the same error text."""
    text, _ = access.capability(principal(tokens, acme, "runtimes:read"), etl)
    other = new_runtime_id()
    actor = CapabilityRights({other: [KEY.for_runtime(other)]}, clock)
    asked: list[tuple[str, RuntimeId | None]] = [
        (text, other),
        (text, etl.id),
        (text, None),
        (tokens.issue(rival.id).text, other),
        ("", None),
    ]
    remarks = set()
    for token, runtime in asked:
        with pytest.raises(NotAuthenticatedError) as caught:
            actor(token, runtime)
        remarks.add(str(caught.value))
    assert 1 == len(remarks)


def test_no_capability_without_a_right(
    access: Access, tokens: Tokens, acme: Tenant, rival: Tenant, etl: RuntimeRecord
) -> None:
    """Nor for a runtime of another tenant, whatever the caller looked up."""
    for holder in (principal(tokens, acme, "admin", "teams"), principal(tokens, rival, "runtimes:read")):
        with pytest.raises(RejectedError, match="opens no runtime"):
            access.capability(holder, etl)
    foreign = replace(etl, tenant=rival.id)
    with pytest.raises(RejectedError):
        access.capability(principal(tokens, acme, "runtimes:read"), foreign)
