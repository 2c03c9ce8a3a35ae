"""Tenants, managed by the operator; and names that tenants may choose."""

from __future__ import annotations

import math

import pytest

from cenote.gateway.store.tenants import Tenant, Tenants
from cenote.gateway.values.names import MAX_NAME, QualifiedName, check_name
from cenote_security.errors import EntryExistsError, UnknownEntryError, UsageError


def test_a_tenant_is_kept(tenants: Tenants) -> None:
    """With its share of a full machine."""
    acme = tenants.create("acme", weight=2.5)
    tenants.create("Beta")
    assert acme == tenants.get("acme")
    assert ["Beta", "acme"] == [tenant.name for tenant in tenants.all()]


def test_a_closed_tenant_keeps_its_name(tenants: Tenants, acme: Tenant) -> None:
    """A new tenant with that name would be taken for the former one."""
    tenants.close("acme")
    assert tenants.get("acme").closed is not None
    with pytest.raises(EntryExistsError, match="the tenant 'acme' exists already"):
        tenants.create("acme")
    with pytest.raises(UnknownEntryError):
        tenants.close("acme")


def test_an_unknown_tenant(tenants: Tenants) -> None:
    """The error says so: only the operator can ask."""
    for ask in (tenants.get, tenants.close):
        with pytest.raises(UnknownEntryError, match="no tenant 'nobody' here"):
            ask("nobody")


@pytest.mark.parametrize("weight", [0.001, 1000])
def test_weights_at_their_bounds(tenants: Tenants, weight: float) -> None:
    """They are accepted."""
    assert weight == tenants.create("acme", weight=weight).weight


@pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan, 1001])
def test_weights_are_positive_and_bounded(tenants: Tenants, weight: float) -> None:
    """One tenant must not be able to take everything."""
    with pytest.raises(UsageError, match=r"from 0\.001 to 1000"):
        tenants.create("acme", weight=weight)


@pytest.mark.parametrize("name", ["a", "9", "A.b_c-d", "a" * MAX_NAME, "a..b"])
def test_names_that_are_taken(name: str) -> None:
    """Characters that are safe in a path, a URL, a log and a terminal."""
    assert name == check_name("runtime", name)


@pytest.mark.parametrize(
    "name",
    ["", "a" * (MAX_NAME + 1), "-a", "a-", ".", "..", "a/b", "a b", "ä", "a\n", "a\0", "\x1b[31m", "٣"],
)
def test_names_that_are_not(name: str) -> None:
    """The error shows the name without terminal control sequences."""
    with pytest.raises(UsageError, match="is no name for a runtime") as caught:
        check_name("runtime", name)
    assert str(caught.value).isprintable()


def test_a_qualified_name() -> None:
    """Without a tenant it names the caller's own."""
    assert "acme/etl" == str(QualifiedName.parse("etl", tenant="acme"))
    assert "rival/etl" == str(QualifiedName.parse("rival/etl", tenant="acme"))
    for text in ("rival/", "/etl", "rival/etl/more", ""):
        with pytest.raises(UsageError):
            QualifiedName.parse(text, tenant="acme")
