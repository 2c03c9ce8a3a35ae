"""Names of runtimes: each tenant has its own, and cannot see the others'."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.gateway.store.database import Database
from cenote.gateway.store.runtimes import Runtimes
from cenote.gateway.store.tenants import Tenant, Tokens
from cenote.gateway.values.principal import Principal
from cenote_security.errors import EntryExistsError, UnknownRuntimeError, UsageError
from cenote_security.ids import RuntimeId, new_runtime_id


@pytest.fixture
def runtimes(database: Database) -> Runtimes:
    return Runtimes(database, bytes(32))


@pytest.fixture
def hostile(database: Database, rival: Tenant) -> Principal:
    """The other tenant, with all scopes that a token can have."""
    tokens = Tokens(database)
    return tokens.authenticate(tokens.issue(rival.id, ["runtimes:read", "runtimes:write", "admin"]).text)


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(UnknownRuntimeError) as caught:
        ask()
    return str(caught.value)


def test_a_runtime_is_found_by_name_and_by_id(runtimes: Runtimes, hostile: Principal) -> None:
    """By its own tenant, with or without the tenant's name."""
    etl = runtimes.add(hostile.tenant, "etl")
    assert [etl] * 4 == [
        runtimes.by_name(hostile.tenant, "etl"),
        runtimes.by_id(hostile.tenant, etl.id),
        runtimes.find(hostile, "etl"),
        runtimes.find(hostile, "rival/etl"),
    ]
    assert [etl] == runtimes.of(hostile.tenant)
    runtimes.remove(hostile.tenant, etl.id)
    assert [] == runtimes.of(hostile.tenant)


def test_two_tenants_may_use_one_name(runtimes: Runtimes, acme: Tenant, rival: Tenant) -> None:
    """A name that another tenant has is free here: refusing it would reveal that."""
    one, other = runtimes.add(acme.id, "etl"), runtimes.add(rival.id, "etl")
    assert one.id != other.id
    assert (one, other) == (runtimes.by_name(acme.id, "etl"), runtimes.by_name(rival.id, "etl"))
    with pytest.raises(EntryExistsError, match="the runtime 'etl' exists already"):
        runtimes.add(acme.id, "etl")


def test_what_another_tenant_has_is_not_there(runtimes: Runtimes, acme: Tenant, hostile: Principal) -> None:
    """By name, by full name, by id: the answer is the one for a runtime that does not exist."""
    secret = runtimes.add(acme.id, "secret")
    unused = new_runtime_id()

    def remarks(name: str, runtime: RuntimeId) -> list[str]:
        asked = [
            lambda: runtimes.find(hostile, name),
            lambda: runtimes.find(hostile, f"acme/{name}"),
            lambda: runtimes.by_name(hostile.tenant, name),
            lambda: runtimes.by_id(hostile.tenant, runtime),
            lambda: runtimes.remove(hostile.tenant, runtime),
        ]
        return [refusal(ask).replace(name, "NAME").replace(runtime, "ID") for ask in asked]

    assert remarks("other", unused) == remarks("secret", secret.id)
    assert secret == runtimes.by_id(acme.id, secret.id)
    assert [] == runtimes.of(hostile.tenant)


@pytest.mark.parametrize("full", [False, True], ids=["few", "many"])
@pytest.mark.databases("sqlite")
def test_what_another_tenant_has_is_not_there_in_the_same_number_of_steps(
    runtimes: Runtimes, database: Database, acme: Tenant, hostile: Principal, full: bool
) -> None:
    """Timing reveals nothing: the database executes as many instructions for another tenant's runtime as for none."""
    secret = runtimes.add(acme.id, "secret")
    for number in range(50 if full else 0):
        runtimes.add(hostile.tenant, f"own-{number}")

    def steps(ask: Callable[[], object]) -> int:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        # Nothing else measures the cost of a statement.
        database._session._connection.set_progress_handler(step, 1)
        try:
            refusal(ask)
        finally:
            database._session._connection.set_progress_handler(None, 0)
        return count

    assert steps(lambda: runtimes.find(hostile, "other")) == steps(lambda: runtimes.find(hostile, "secret"))
    assert steps(lambda: runtimes.find(hostile, "nobody/secret")) == steps(
        lambda: runtimes.find(hostile, "acme/secret")
    )
    assert steps(lambda: runtimes.by_id(hostile.tenant, new_runtime_id())) == steps(
        lambda: runtimes.by_id(hostile.tenant, secret.id)
    )
    assert steps(lambda: runtimes.remove(hostile.tenant, new_runtime_id())) == steps(
        lambda: runtimes.remove(hostile.tenant, secret.id)
    )


def test_a_name_is_no_id(runtimes: Runtimes, acme: Tenant, rival: Tenant) -> None:
    """A runtime whose name equals another one's id is found by that name."""
    secret = runtimes.add(acme.id, "secret")
    decoy = runtimes.add(rival.id, secret.id)
    assert decoy == runtimes.by_name(rival.id, secret.id)
    with pytest.raises(UnknownRuntimeError):
        runtimes.by_id(rival.id, secret.id)


@pytest.mark.parametrize("name", ["", "a/b", "../etl", "a" * 65, "a\nb"])
def test_names_that_are_none(runtimes: Runtimes, acme: Tenant, name: str) -> None:
    """Names end up in logs, paths and URLs."""
    with pytest.raises(UsageError):
        runtimes.add(acme.id, name)
