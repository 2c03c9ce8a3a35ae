"""Turns on an event loop, and how many streams a tenant may have."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import PATIENCE

from cenote.gateway.api.calls import ConnectionLimit
from cenote.gateway.api.fair_turns import TenantSemaphore
from cenote.gateway.values.principal import Principal
from cenote_security.errors import QuotaExceededError
from cenote_security.ids import TenantId, TokenId


def principal(tenant: str) -> Principal:
    return Principal(
        tenant=TenantId(tenant), tenant_name=tenant, weight=1.0, token=TokenId("t"), scopes=frozenset()
    )


class Stage:
    """Records who had a turn, in order; turns last until the gate opens."""

    def __init__(self, turns: TenantSemaphore) -> None:
        self.turns = turns
        self.had: list[str] = []
        self.gate = asyncio.Event()

    async def take(self, tenant: str) -> None:
        async with self.turns.turn(principal(tenant)):
            self.had.append(tenant)
            await self.gate.wait()


async def settled() -> None:
    """Lets every task run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_turns_at_once() -> None:
    """The others wait, and the tenants alternate."""
    stage = Stage(TenantSemaphore(2))
    tasks = [asyncio.create_task(stage.take(tenant)) for tenant in ("a", "a", "a", "b")]
    await settled()
    assert ["a", "a"] == stage.had
    stage.gate.set()
    await asyncio.gather(*tasks)
    assert ["a", "a", "b", "a"] == stage.had


async def test_whoever_leaves_holds_nobody_up() -> None:
    """A request that is cancelled while it waits, or the moment its turn comes, passes the turn on."""
    stage = Stage(TenantSemaphore(1))
    first, second, third = (asyncio.create_task(stage.take(tenant)) for tenant in ("a", "b", "c"))
    await settled()
    second.cancel()
    await settled()
    first.cancel()  # its turn goes to the third, which is cancelled before it has noticed
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    stage.gate.set()
    await asyncio.wait_for(stage.take("d"), PATIENCE)
    assert "d" == stage.had[-1]


async def test_a_turn_that_fails_is_over() -> None:
    """The next turn starts."""
    turns = TenantSemaphore(1)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn(principal("a")):
            raise ZeroDivisionError
    async with turns.turn(principal("b")):
        pass


def test_streams_of_one_tenant_are_bounded() -> None:
    """At the limit, and one past it; other tenants are not affected, and a stream that ends frees its place."""
    attendance, acme = ConnectionLimit(most=1), TenantId("acme")
    with attendance.one(acme):
        with pytest.raises(QuotaExceededError), attendance.one(acme):
            pass
        with attendance.one(TenantId("rival")):
            pass
    with attendance.one(acme):
        pass
