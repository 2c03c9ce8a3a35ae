"""The account of a team: never overspent, nothing lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE

from cenote.team.budget import NANO, Amount, Budget, BudgetAccount
from cenote.team.budget_ledger import BudgetLedger
from cenote.team.errors import BudgetExceededError
from cenote_security.errors import UsageError


def tokens(count: int) -> Amount:
    return Amount(tokens=count)


def refused(account: BudgetAccount, amount: Amount) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as refusal:
        account.reserve(amount)
    return refusal.value


def test_a_reservation_is_granted_up_to_the_limit_and_not_beyond() -> None:
    """All of it at once, or not one token more; the error says how much there was."""
    assert 1 == BudgetAccount(Budget(tokens=100)).reserve(tokens(100))
    error = refused(BudgetAccount(Budget(tokens=100)), tokens(101))
    assert ("tokens", 101, 100) == (error.resource, error.needed, error.left)
    assert "101 needed with room for an answer (`Budget.answer`), 100 left" in str(error)


def test_what_others_have_reserved_is_waited_for() -> None:
    """It is not refused: the other calls may turn out cheaper. Settled in full, they leave too little."""
    account = BudgetAccount(Budget(tokens=100))
    first = account.reserve(tokens(60))
    assert first is not None
    assert account.reserve(tokens(60)) is None
    account.settle(first, tokens(30))
    assert account.reserve(tokens(60)) is not None
    assert 10 == refused(BudgetAccount(Budget(tokens=100), tokens(90)), tokens(11)).left


def test_more_than_was_reserved_is_booked_in_full() -> None:
    """A server that reports more than was reserved is believed: later calls are refused."""
    account = BudgetAccount(Budget(tokens=100))
    account.settle(account.reserve(tokens(50)) or 0, tokens(120))
    assert (tokens(120), 0) == (account.spent, refused(account, tokens(1)).left)


def test_money_is_counted_exactly() -> None:
    """Ten times ten cents is a dollar, to the last nanodollar."""
    account = BudgetAccount(Budget(cost=1.0))
    dime = Amount(nanodollars=NANO // 10)
    for _ in range(10):
        account.settle(account.reserve(dime) or 0, dime)
    error = refused(account, Amount(nanodollars=1))
    assert ("cost", 1e-9, 0) == (error.resource, error.needed, error.left)


def test_a_ticket_is_settled_once() -> None:
    """Settling twice is a bug of the caller, and raises an error."""
    account = BudgetAccount(Budget())
    ticket = account.reserve(tokens(1)) or 0
    account.settle(ticket, tokens(1))
    with pytest.raises(KeyError):
        account.settle(ticket, tokens(1))


def test_agents_and_depth_have_limits() -> None:
    """At the limit, and one past it; a retired agent frees its place."""
    account = BudgetAccount(Budget(agents=2, depth=3))
    account.check_depth(3)
    with pytest.raises(BudgetExceededError, match="depth"):
        account.check_depth(4)
    account.hire()
    account.hire()
    with pytest.raises(BudgetExceededError, match="agents"):
        account.hire()
    account.retire()
    account.hire()


@pytest.mark.parametrize(
    "limits",
    [
        {"tokens": -1},
        {"tokens": 2**70},
        {"agents": 2**64},
        {"cost": float("nan")},
        {"cost": float("inf")},
        {"cost": 1e300},
        {"seconds": 0},
        {"answer": 0},
        {"answer": 2**64},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(limits: dict[str, float]) -> None:
    """Before anything is created with it."""
    with pytest.raises(UsageError):
        Budget(**limits)


@given(
    limit=st.integers(0, 200),
    calls=st.lists(st.tuples(st.integers(0, 80), st.floats(0, 1), st.integers(0, 3)), max_size=40),
)
def test_no_order_of_calls_overspends(limit: int, calls: list[tuple[int, float, int]]) -> None:
    """However reservations and settlements interleave: spent and reserved together stay within the limit, and in
    the end exactly what was used is booked.
    """
    account = BudgetAccount(Budget(tokens=limit))
    under_way: list[tuple[int, int]] = []
    used = 0
    for needed, share, settled in calls:
        try:
            ticket = account.reserve(tokens(needed))
        except BudgetExceededError:
            assert account.spent.tokens + needed > limit
            ticket = None
        if ticket is not None:
            under_way.append((ticket, int(needed * share)))
        assert account.spent.tokens + account.reserved.tokens <= limit
        for _ in range(min(settled, len(under_way))):
            done, cost = under_way.pop(0)
            account.settle(done, tokens(cost))
            used += cost
    for done, cost in under_way:
        account.settle(done, tokens(cost))
        used += cost
    assert (used, 0) == (account.spent.tokens, account.reserved.tokens)


CALLS = st.lists(
    st.tuples(st.integers(1, 60), st.floats(0, 1), st.sampled_from(["done", "failed", "cancelled"])),
    max_size=20,
)


@settings(max_examples=50, deadline=None)
@given(limit=st.integers(60, 150), calls=CALLS)
def test_concurrent_calls_never_overspend(limit: int, calls: list[tuple[int, float, str]]) -> None:
    """Calls that end, fail or are cancelled concurrently: all settle, all affordable ones are made, none hangs."""
    treasury = BudgetLedger(Budget(tokens=limit))

    async def call(needed: int, share: float, fate: str) -> int:
        ticket = await treasury.reserve(tokens(needed))
        used = 0
        try:
            assert (treasury.remaining().tokens or 0) >= 0
            await asyncio.sleep(0)
            used = int(needed * share)
            if fate == "failed":
                raise ConnectionError
            if fate == "cancelled":
                raise asyncio.CancelledError
            return used
        finally:
            treasury.settle(ticket, tokens(used))

    async def all_calls() -> list[int | BaseException]:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*(call(*each) for each in calls), return_exceptions=True)

    results = asyncio.run(all_calls())
    refusals = sum(isinstance(result, BudgetExceededError) for result in results)
    assert treasury.spent.tokens <= limit
    assert limit - treasury.spent.tokens == treasury.remaining().tokens
    if sum(needed for needed, *_ in calls) <= limit:
        assert (0, sum(int(n * share) for n, share, _ in calls)) == (refusals, treasury.spent.tokens)


async def test_a_waiting_call_goes_on_when_another_is_settled_from_a_thread() -> None:
    """Host calls settle from threads; the waiting task is notified."""
    treasury = BudgetLedger(Budget(tokens=10))
    first = await treasury.reserve(tokens(10))
    waiting = asyncio.create_task(treasury.reserve(tokens(10)))
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(treasury.settle, first, Amount())
    assert 2 == await asyncio.wait_for(waiting, PATIENCE)


async def test_a_call_that_gives_up_waiting_holds_nothing() -> None:
    """Cancelled while it waits: the next call gets everything."""
    treasury = BudgetLedger(Budget(tokens=10))
    first = await treasury.reserve(tokens(10))
    waiting = asyncio.create_task(treasury.reserve(tokens(10)))
    await asyncio.sleep(0)
    waiting.cancel()
    treasury.settle(first, Amount())
    assert 2 == await asyncio.wait_for(treasury.reserve(tokens(10)), PATIENCE)


async def test_time_runs_from_the_first_task_on() -> None:
    """At the limit a call is refused; the time starts with the first task."""
    now = 100.0
    treasury = BudgetLedger(Budget(seconds=5), clock=lambda: now)
    now = 200.0
    assert 5 == treasury.remaining().seconds
    treasury.start()
    now = 204.9
    treasury.start()
    assert 1 == await treasury.reserve(Amount())
    now = 205.0
    with pytest.raises(BudgetExceededError, match="seconds"):
        await treasury.reserve(Amount())


def test_limits_are_numbers() -> None:
    """A value that is not a number is refused by name when the budget is created."""
    with pytest.raises(
        UsageError, match=r"a budget's tokens is a whole number from 0 to .*, or None for no limit, not 'x'"
    ):
        Budget(tokens="x")  # type: ignore[arg-type]
