"""The ledger of quotas: reservations never exceed the limit, and are returned."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cenote.gateway.values.quota import Hold, Quota, QuotaLedger
from cenote_security.errors import QuotaExceededError, RejectedError, UsageError
from cenote_security.ids import TenantId

ACME, RIVAL = TenantId("acme"), TenantId("rival")
LIMITS = {Quota.RUNTIMES: 2, Quota.MEMORY: 4 * 2**30}


def hold(key: str, tenant: TenantId = ACME, **amounts: int) -> Hold:
    return Hold(key=key, tenant=tenant, amounts={Quota(name): amount for name, amount in amounts.items()})


def test_the_limit_is_taken_and_no_more() -> None:
    """The last one within the limit is admitted; the next one's error has the usage, the limit and what to do."""
    ledger = QuotaLedger()
    ledger.reserve(hold("one", runtimes=1, memory=3 * 2**30), LIMITS)
    ledger.reserve(hold("two", runtimes=1, memory=2**30), LIMITS)
    with pytest.raises(QuotaExceededError) as caught:
        ledger.reserve(hold("three", memory=1), LIMITS)
    assert isinstance(caught.value, RejectedError)
    assert (
        "the quota of memory is used up: 4 GiB of 4 GiB are taken, 1 B more were asked for; close "
        "runtimes, or give them less memory in their policies, or ask the operator for a higher quota"
    ) == str(caught.value)


def test_a_refused_request_takes_nothing() -> None:
    """Not even of the quotas that had space."""
    ledger = QuotaLedger()
    with pytest.raises(QuotaExceededError, match="quota of memory"):
        ledger.reserve(hold("one", runtimes=1, cells=1, memory=5 * 2**30), LIMITS)
    assert {0} == set(ledger.used(ACME).values())
    ledger.reserve(hold("one", runtimes=2), LIMITS)


def test_a_tenant_does_not_use_anothers_quota() -> None:
    """Each tenant has its own sum."""
    ledger = QuotaLedger()
    ledger.reserve(hold("one", runtimes=2), LIMITS)
    ledger.reserve(hold("two", RIVAL, runtimes=2), LIMITS)
    assert (2, 2) == (ledger.used(ACME)[Quota.RUNTIMES], ledger.used(RIVAL)[Quota.RUNTIMES])


def test_settling_gives_back_what_was_too_much() -> None:
    """It requests what was too little; if that is refused, the reservation stays."""
    ledger = QuotaLedger()
    ledger.reserve(hold("one", stored=80), {Quota.STORED: 100})
    ledger.settle("one", {Quota.STORED: 30}, {Quota.STORED: 100})
    ledger.reserve(hold("two", stored=60), {Quota.STORED: 100})
    with pytest.raises(QuotaExceededError, match="90 B of 100 B are taken, 11 B more"):
        ledger.settle("two", {Quota.STORED: 71}, {Quota.STORED: 100})
    assert 90 == ledger.used(ACME)[Quota.STORED]
    ledger.settle("two", {Quota.STORED: 70}, {Quota.STORED: 100})
    assert 100 == ledger.used(ACME)[Quota.STORED]


def test_a_lowered_limit_takes_nothing_away() -> None:
    """Existing usage stays and may shrink; nothing new is admitted except requests that need none of that quota."""
    ledger = QuotaLedger()
    ledger.reserve(hold("one", runtimes=2, stored=5), LIMITS)
    lower = {Quota.RUNTIMES: 1}
    with pytest.raises(QuotaExceededError):
        ledger.reserve(hold("two", runtimes=1), lower)
    ledger.reserve(hold("two", runtimes=0, cells=1), lower)
    ledger.settle("one", {Quota.RUNTIMES: 2}, lower)


def test_releasing_twice_is_fine() -> None:
    """Failure paths meet here; releasing twice must not free more than was reserved."""
    ledger = QuotaLedger()
    ledger.reserve(hold("one", runtimes=2), LIMITS)
    ledger.release("one")
    ledger.release("one")
    assert 0 == ledger.used(ACME)[Quota.RUNTIMES]


def test_mistakes_of_the_caller() -> None:
    """A key twice, a key without a reservation, a negative amount."""
    ledger = QuotaLedger([hold("one", runtimes=1)])
    for act in (
        lambda: ledger.reserve(hold("one", cells=1), {}),
        lambda: ledger.settle("two", {}, {}),
        lambda: hold("two", runtimes=-1),
    ):
        with pytest.raises(UsageError):
            act()
    assert 1 == ledger.used(ACME)[Quota.RUNTIMES]


class LedgerBesideASum(RuleBasedStateMachine):
    """Any order of reserving, settling and releasing, compared with a list that is summed each time."""

    LIMIT = 20
    keys = st.sampled_from("abcdefgh")
    tenants = st.sampled_from([ACME, RIVAL])
    amounts = st.dictionaries(st.sampled_from(list(Quota)), st.integers(0, 12))

    def __init__(self) -> None:
        super().__init__()
        self.ledger = QuotaLedger()
        self.held: dict[str, Hold] = {}
        self.limits = dict.fromkeys(Quota, self.LIMIT)

    def total(self, tenant: TenantId, quota: Quota) -> int:
        return sum(hold.amounts.get(quota, 0) for hold in self.held.values() if hold.tenant == tenant)

    def fits(self, tenant: TenantId, amounts: dict[Quota, int], key: str) -> bool:
        before = self.held[key].amounts if key in self.held else {}
        return all(
            self.total(tenant, quota) - before.get(quota, 0) + amount <= self.LIMIT
            for quota, amount in amounts.items()
        )

    @rule(key=keys, tenant=tenants, amounts=amounts)
    def reserve(self, key: str, tenant: TenantId, amounts: dict[Quota, int]) -> None:
        wanted = Hold(key=key, tenant=tenant, amounts=amounts)
        if key in self.held:
            with pytest.raises(UsageError):
                self.ledger.reserve(wanted, self.limits)
        elif self.fits(tenant, amounts, key):
            self.ledger.reserve(wanted, self.limits)
            self.held[key] = wanted
        else:
            with pytest.raises(QuotaExceededError):
                self.ledger.reserve(wanted, self.limits)

    @rule(key=keys, amounts=amounts)
    def settle(self, key: str, amounts: dict[Quota, int]) -> None:
        if key not in self.held:
            return
        tenant = self.held[key].tenant
        if self.fits(tenant, amounts, key):
            assert self.held[key] == self.ledger.settle(key, amounts, self.limits)
            self.held[key] = Hold(key=key, tenant=tenant, amounts=amounts)
        else:
            with pytest.raises(QuotaExceededError):
                self.ledger.settle(key, amounts, self.limits)

    @rule(key=keys)
    def release(self, key: str) -> None:
        self.ledger.release(key)
        self.held.pop(key, None)

    @invariant()
    def the_sums_agree_and_no_limit_is_exceeded(self) -> None:
        for tenant in (ACME, RIVAL):
            sums = {quota: self.total(tenant, quota) for quota in Quota}
            assert sums == self.ledger.used(tenant)
            assert max(sums.values()) <= self.LIMIT


TestLedgerBesideASum = LedgerBesideASum.TestCase
TestLedgerBesideASum.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
