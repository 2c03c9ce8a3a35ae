"""Turns: by weight, without starvation, within every limit. The bounds are those of start-time fair queueing."""

from __future__ import annotations

from collections import Counter, deque
from itertools import count, permutations
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cenote.gateway.errors import QueueFullError
from cenote.gateway.values.fair_queue import MIN_COST, FairQueue
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.ids import TenantId

HOG, SMALL = TenantId("hog"), TenantId("small")

costs = st.floats(0.01, 10)
weights = st.floats(0.1, 10)
tenants_with_weights = st.lists(weights, min_size=2, max_size=5)


def names(count: int) -> list[TenantId]:
    return [TenantId(f"tenant-{number}") for number in range(count)]


def test_requests_of_one_tenant_keep_their_order() -> None:
    """First come, first served, as many at once as there are slots."""
    queue: FairQueue[int] = FairQueue(2)
    for number in range(5):
        queue.submit(number, HOG)
    assert [0, 1] == queue.start()
    assert [] == queue.start()
    queue.finish(1)
    assert [2] == queue.start()
    assert (2, 2) == (queue.waiting, queue.running)


def test_a_newcomer_does_not_wait_behind_a_crowd() -> None:
    """A thousand requests of one tenant delay another tenant's first request by one at the most."""
    queue: FairQueue[str] = FairQueue(1)
    for number in range(1000):
        queue.submit(f"hog-{number}", HOG)
    (running,) = queue.start()
    queue.submit("small", SMALL)
    started = []
    for _ in range(2):
        queue.finish(running)
        (running,) = queue.start()
        started.append(running)
    assert "small" in started


def test_weights_are_shares() -> None:
    """Three to one."""
    queue: FairQueue[int] = FairQueue(1)
    whose = {}
    for number in range(80):
        whose[number] = HOG if number % 2 else SMALL
        queue.submit(number, whose[number], weight=1.0 if number % 2 else 3.0)
    done = Counter[TenantId]()
    for _ in range(40):
        (ticket,) = queue.start()
        done[whose[ticket]] += 1
        queue.finish(ticket)
    assert {SMALL: 30, HOG: 10} == done


def test_what_a_cell_really_took_is_made_up_for() -> None:
    """The cost is unknown beforehand; a tenant with nine-second cells gets a ninth of the turns of one with 1 s
    cells."""
    queue: FairQueue[int] = FairQueue(1)
    numbers = count()
    whose = {}
    turns = Counter[TenantId]()

    def submit(tenant: TenantId) -> None:
        whose[ticket := next(numbers)] = tenant
        queue.submit(ticket, tenant)

    for tenant in (HOG, SMALL):
        for _ in range(2):
            submit(tenant)
    for _ in range(100):
        (ticket,) = queue.start()
        turns[whose[ticket]] += 1
        queue.finish(ticket, cost=9.0 if whose[ticket] == HOG else 1.0)
        submit(whose[ticket])
    assert {HOG: 10, SMALL: 90} == turns


def test_being_away_saves_nothing_up() -> None:
    """A tenant that was idle for a hundred turns does not get the next hundred."""
    queue: FairQueue[int] = FairQueue(1)
    for number in range(300):
        queue.submit(number, HOG)
    for _ in range(100):
        queue.finish(*queue.start())
    for number in range(1000, 1100):
        queue.submit(number, SMALL)
    turns: list[int] = []
    for _ in range(20):
        turns += queue.start()
        queue.finish(turns[-1])
    assert 10 == sum(ticket >= 1000 for ticket in turns)


def test_what_was_taken_is_not_forgotten_by_leaving() -> None:
    """A tenant that took ten times its turn and comes back while others wait goes after them."""
    queue: FairQueue[str] = FairQueue(1)
    queue.submit("long", HOG)
    queue.start()
    for number in range(20):
        queue.submit(f"small-{number}", SMALL)
    queue.finish("long", cost=10.0)
    queue.submit("back", HOG)
    ahead = 0
    while (started := queue.start()) != ["back"]:
        queue.finish(*started)
        ahead += 1
    assert ahead in (10, 11)


def test_when_the_machine_idles_all_are_level_again() -> None:
    """What a tenant took while no other tenant was waiting does not count against it."""
    queue: FairQueue[str] = FairQueue(1)
    queue.submit("long", HOG)
    queue.finish(*queue.start(), cost=1000.0)
    queue.submit("hog", HOG), queue.submit("small", SMALL), queue.submit("hog again", HOG)
    order: list[str] = []
    while queue.waiting:
        order += queue.start()
        queue.finish(order[-1])
    assert ["hog", "small", "hog again"] == order


def test_time_at_its_own_limit_saves_nothing_up() -> None:
    """A tenant whose one slot was busy for a hundred turns of the others gets its usual share afterwards."""
    queue: FairQueue[str] = FairQueue(2)
    third = TenantId("third")
    tickets = {tenant: map(f"{tenant}-{{}}".format, count()) for tenant in (HOG, SMALL, third)}
    for tenant in tickets:
        for _ in range(3):
            queue.submit(next(tickets[tenant]), tenant, at_once=1 if tenant == HOG else None)

    def turns(number: int, spared: str = "") -> Counter[str]:
        """Ends this many requests, each followed by another one of its tenant."""
        ended = Counter[str]()
        for _ in range(number):
            running.extend(queue.start())
            done = next(ticket for ticket in running if ticket != spared)
            running.remove(done)
            queue.finish(done)
            tenant = TenantId(done.split("-")[0])
            queue.submit(next(tickets[tenant]), tenant, at_once=1 if tenant == HOG else None)
            ended[tenant] += 1
        return ended

    running: list[str] = []
    assert 0 == turns(100, spared="hog-0")[HOG]
    assert 25 >= turns(60)[HOG]


@pytest.mark.parametrize("settled", [None, 0.0], ids=["expected", "settled"])
def test_a_request_that_costs_nothing_costs_something(settled: float | None) -> None:
    """Otherwise its tenant would go first for ever: here it goes a thousand times per second of another tenant."""
    queue: FairQueue[int] = FairQueue(1, backlog=3000)
    for number in range(3000):
        queue.submit(number, HOG, cost=1e-9)
    queue.submit(-1, SMALL), queue.submit(-2, SMALL)
    order: list[int] = []
    while -2 not in order:
        order += queue.start()
        queue.finish(order[-1], cost=settled if order[-1] >= 0 else 1.0)
    assert -1 in order[:2]
    assert 1000 == pytest.approx(len(order), abs=5)


def test_a_withdrawn_request_does_not_run() -> None:
    """A running request cannot be withdrawn, nor can an unknown one."""
    queue: FairQueue[str] = FairQueue(1)
    for ticket in "abc":
        queue.submit(ticket, HOG)
    assert ["a"] == queue.start()
    assert [True, False, False, False] == [queue.withdraw(ticket) for ticket in ("b", "b", "a", "z")]
    queue.finish("a")
    assert ["c"] == queue.start()


def test_a_tenant_may_wait_with_so_many_and_no_more() -> None:
    """The error says to try again; another tenant may still queue."""
    queue: FairQueue[int] = FairQueue(1, backlog=3)
    for number in range(3):
        queue.submit(number, HOG)
    with pytest.raises(QueueFullError, match="3 requests of this tenant wait") as caught:
        queue.submit(3, HOG)
    assert isinstance(caught.value, UnavailableError)
    queue.submit(4, SMALL)
    queue.start()
    queue.submit(3, HOG)


def test_a_tenant_at_its_own_limit_lets_others_go() -> None:
    """No slots are reserved for it, and it gains nothing by waiting."""
    queue: FairQueue[int] = FairQueue(3)
    for number in range(4):
        queue.submit(number, HOG, at_once=1)
    queue.submit(10, SMALL)
    queue.submit(11, SMALL)
    assert [0, 10, 11] == queue.start()
    queue.finish(11)
    assert [] == queue.start()
    queue.finish(0)
    assert [1] == queue.start()


def test_mistakes_of_the_caller() -> None:
    """A ticket twice, invalid numbers, the end of a request that did not run."""
    queue: FairQueue[int] = FairQueue(1)
    queue.submit(1, HOG)
    with pytest.raises(UsageError, match="already"):
        queue.submit(1, SMALL)
    queue.start()
    with pytest.raises(UsageError, match="already"):
        queue.submit(1, SMALL)
    with pytest.raises(UsageError, match="does not run"):
        queue.finish(2)
    for wrong in ({"cost": 0}, {"cost": float("inf")}, {"weight": float("nan")}, {"at_once": 0}):
        with pytest.raises(UsageError, match="positive and finite"):
            queue.submit(3, HOG, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        FairQueue(0)


@settings(max_examples=60, deadline=None)
@given(tenants_with_weights, st.integers(1, 4), costs, st.randoms(use_true_random=False))
def test_unfairness_is_bounded(shares: list[float], slots: int, most: float, chance: Random) -> None:
    """Among always-waiting tenants, cost / weight differs by at most the largest request of each of the two."""
    queue: FairQueue[tuple[TenantId, int]] = FairQueue(slots)
    weight = dict(zip(names(len(shares)), shares, strict=True))
    charged = dict.fromkeys(weight, 0.0)
    size: dict[tuple[TenantId, int], float] = {}
    running: deque[tuple[TenantId, int]] = deque()
    numbers = count()

    def submit(tenant: TenantId) -> None:
        ticket = (tenant, next(numbers))
        size[ticket] = chance.uniform(MIN_COST, most + MIN_COST)
        queue.submit(ticket, tenant, cost=size[ticket], weight=weight[tenant])

    for tenant in weight:
        for _ in range(slots + 1):
            submit(tenant)
    for _ in range(60):
        for ticket in queue.start():
            charged[ticket[0]] += size[ticket]
            running.append(ticket)
            submit(ticket[0])
            level = {tenant: charged[tenant] / weight[tenant] for tenant in weight}
            largest = {tenant: (most + MIN_COST) / weight[tenant] for tenant in weight}
            for one, other in permutations(weight, 2):
                assert level[one] - level[other] <= largest[one] + largest[other] + 1e-6
        running.rotate(chance.randrange(len(running)))
        queue.finish(running.popleft())


@settings(max_examples=60, deadline=None)
@given(tenants_with_weights, st.integers(1, 4), st.randoms(use_true_random=False))
def test_nobody_starves(shares: list[float], slots: int, chance: Random) -> None:
    """However different weights and costs are, each other tenant goes before a newcomer once at the most."""
    queue: FairQueue[tuple[TenantId, int]] = FairQueue(slots)
    weight = dict(zip(names(len(shares)), shares, strict=True))
    numbers = count()

    def submit(tenant: TenantId) -> None:
        queue.submit((tenant, next(numbers)), tenant, cost=chance.uniform(0.01, 10), weight=weight[tenant])

    running: list[tuple[TenantId, int]] = []

    def turn() -> list[tuple[TenantId, int]]:
        if len(running) == slots:
            queue.finish(running.pop(chance.randrange(slots)))
        started = queue.start()
        running.extend(started)
        for tenant, _ in started:
            if tenant in weight:
                submit(tenant)
        return started

    for tenant in weight:
        for _ in range(slots + 1):
            submit(tenant)
    for _ in range(chance.randrange(60)):
        turn()
    queue.submit((SMALL, -1), SMALL, cost=10, weight=0.1)
    ahead: list[TenantId] = []
    while (SMALL, -1) not in (started := turn()):
        ahead += [tenant for tenant, _ in started]
    assert set(Counter(ahead).values()) <= {1}


class QueueBesideAList(RuleBasedStateMachine):
    """Any order of calls: no slot too many, no tenant beyond its limit, no usable slot idle."""

    SLOTS = 3
    AT_ONCE: ClassVar[dict[TenantId, int | None]] = {TenantId("a"): 1, TenantId("b"): 2, TenantId("c"): None}
    tenants = st.sampled_from(sorted(AT_ONCE))

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue(self.SLOTS, backlog=4)
        self.numbers = count()
        self.waiting: dict[int, TenantId] = {}
        self.running: dict[int, TenantId] = {}

    @rule(tenant=tenants, cost=costs, weight=weights)
    def submit(self, tenant: TenantId, cost: float, weight: float) -> None:
        ticket = next(self.numbers)
        asked = {"cost": cost, "weight": weight}
        if list(self.waiting.values()).count(tenant) < 4:
            self.queue.submit(ticket, tenant, at_once=self.AT_ONCE[tenant], **asked)
            self.waiting[ticket] = tenant
        else:
            with pytest.raises(QueueFullError):
                self.queue.submit(ticket, tenant, at_once=self.AT_ONCE[tenant], **asked)

    @rule()
    def start(self) -> None:
        for ticket in self.queue.start():
            tenant = self.waiting.pop(ticket)
            assert ticket < min(
                (other for other, owner in self.waiting.items() if owner == tenant), default=ticket + 1
            )
            self.running[ticket] = tenant
        assert not self.could_run() or len(self.running) == self.SLOTS

    @rule(pick=st.integers(0), cost=st.one_of(st.none(), st.floats(0, 100)))
    def finish(self, pick: int, cost: float | None) -> None:
        if self.running:
            ticket = sorted(self.running)[pick % len(self.running)]
            self.queue.finish(ticket, cost)
            del self.running[ticket]

    @rule(pick=st.integers(0))
    def withdraw(self, pick: int) -> None:
        if self.waiting:
            ticket = sorted(self.waiting)[pick % len(self.waiting)]
            assert self.queue.withdraw(ticket)
            del self.waiting[ticket]

    def could_run(self) -> set[TenantId]:
        busy = Counter(self.running.values())
        return {
            tenant
            for tenant in self.waiting.values()
            if (limit := self.AT_ONCE[tenant]) is None or busy[tenant] < limit
        }

    @invariant()
    def no_limit_is_exceeded_and_nothing_is_lost(self) -> None:
        assert (len(self.waiting), len(self.running)) == (self.queue.waiting, self.queue.running)
        assert len(self.running) <= self.SLOTS
        for tenant, busy in Counter(self.running.values()).items():
            assert busy <= (self.AT_ONCE[tenant] or self.SLOTS)


TestQueueBesideAList = QueueBesideAList.TestCase
TestQueueBesideAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
