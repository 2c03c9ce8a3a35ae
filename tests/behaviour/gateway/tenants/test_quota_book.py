"""Quotas that persist across gateways."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.store.database import Database
from cenote.gateway.store.quotas import QuotaBook
from cenote.gateway.store.tenants import Tenant
from cenote.gateway.values.quota import Hold, Quota
from cenote_security.errors import QuotaExceededError, UsageError


def runtime(tenant: Tenant, key: str, memory: int = 1) -> Hold:
    amounts = {Quota.RUNTIMES: 1, Quota.MEMORY: memory}
    return Hold(key=key, tenant=tenant.id, amounts=amounts, lasting=True)


def cell(tenant: Tenant, key: str) -> Hold:
    return Hold(key=key, tenant=tenant.id, amounts={Quota.CELLS: 1})


def test_what_lasts_is_counted_by_the_next_gateway(database: Database, acme: Tenant) -> None:
    """Runtimes continue to exist when the gateway dies, cells in flight do not."""
    book = QuotaBook(database)
    book.reserve(runtime(acme, "rt_1", 100))
    book.reserve(runtime(acme, "rt_2", 100))
    book.reserve(cell(acme, "cell_1"))
    book.settle("rt_2", {Quota.RUNTIMES: 1, Quota.MEMORY: 50})
    book.release("rt_1")
    again = QuotaBook(database)
    used = again.used(acme.id)
    assert (1, 50, 0) == (used[Quota.RUNTIMES], used[Quota.MEMORY], used[Quota.CELLS])
    again.release("rt_2")
    assert {0} == set(QuotaBook(database).used(acme.id).values())


def test_what_is_no_more_is_not_counted(database: Database, acme: Tenant) -> None:
    """A gateway may be killed between the end of an object and the end of its hold. A cell has no such hold."""
    book = QuotaBook(database)
    book.reserve(runtime(acme, "rt_1", 100))
    book.reserve(runtime(acme, "rt_2", 50))
    book.reserve(cell(acme, "cell_1"))
    book.release_all_but(lambda: {"rt_2"})
    for each, cells in ((book, 1), (QuotaBook(database), 0)):
        used = each.used(acme.id)
        assert (1, 50, cells) == (used[Quota.RUNTIMES], used[Quota.MEMORY], used[Quota.CELLS])


def test_limits_are_kept_and_have_defaults(database: Database, acme: Tenant, rival: Tenant) -> None:
    """A tenant's own limit takes precedence over the default; without either there is no limit."""
    book = QuotaBook(database, {Quota.RUNTIMES: 1})
    book.set_limit(acme.id, Quota.RUNTIMES, 5)
    book.set_limit(acme.id, Quota.RUNTIMES, 2)
    assert {Quota.RUNTIMES: 2} == QuotaBook(database).limits(acme.id)
    for key in ("a", "b"):
        book.reserve(runtime(acme, key))
    book.reserve(runtime(rival, "c"))
    for tenant in (acme, rival):
        with pytest.raises(QuotaExceededError, match="quota of runtimes"):
            book.reserve(runtime(tenant, "d"))
    book.set_limit(acme.id, Quota.RUNTIMES, None)
    assert {Quota.RUNTIMES: 1} == book.limits(acme.id)


@pytest.mark.parametrize("limit", [-1, 2**62 + 1])
def test_what_is_no_limit(database: Database, acme: Tenant, limit: int) -> None:
    """The database cannot store such a number."""
    with pytest.raises(UsageError, match="from 0 to"):
        QuotaBook(database).set_limit(acme.id, Quota.STORED, limit)


def test_threads_do_not_get_past_a_limit(database: Database, acme: Tenant) -> None:
    """The limit holds, however many threads ask at once."""
    book = QuotaBook(database, {Quota.CELLS: 10})

    def ask(number: int) -> None:
        with suppress(QuotaExceededError):
            book.reserve(cell(acme, f"cell_{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(100)))
    assert 10 == book.used(acme.id)[Quota.CELLS]


@pytest.mark.databases("sqlite")
def test_what_could_not_be_kept_is_not_held(database: Database, acme: Tenant) -> None:
    """The ledger in memory and the one on the disk agree after a disk failure."""
    book = QuotaBook(database)
    book.reserve(runtime(acme, "rt_1", 7))
    database.execute("CREATE TRIGGER full BEFORE INSERT ON holds BEGIN SELECT RAISE(ROLLBACK, 'disk'); END")
    for act in (
        lambda: book.reserve(runtime(acme, "rt_2")),
        lambda: book.settle("rt_1", {Quota.MEMORY: 1}),
    ):
        with pytest.raises(Exception, match="disk"):
            act()
    database.execute("DROP TRIGGER full")
    assert book.used(acme.id) == QuotaBook(database).used(acme.id)
    assert 7 == book.used(acme.id)[Quota.MEMORY]


def test_a_closed_database_lets_nobody_in(database: Database, acme: Tenant) -> None:
    """Without its limits no request is admitted."""
    book = QuotaBook(database)
    database.close()
    with pytest.raises(DatabaseUnavailableError):
        book.reserve(cell(acme, "cell_1"))
    assert {0} == set(book.used(acme.id).values())
