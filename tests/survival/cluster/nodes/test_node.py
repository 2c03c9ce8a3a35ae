"""A node and its hosts: whatever dies, each runtime is served once or its loss is reported, and no call hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import PATIENCE, until

from cenote_security.auth.capability import RuntimeKey
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.ids import RuntimeId
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.node.assignment import KEY, Assignment
from cenote_worker.node.host import ServedRuntimeStatus
from cenote_worker.node.node import ARRIVAL, LONGEST_UNREST, QUIET, ClusterNode, HostGone
from cenote_worker.node.placement import HostId
from cenote_worker.node.references import NodeReferences
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.serving.endpoints import Endpoints
from cenote_worker.tenancy.audit_events import EventBatch


def at(name: str) -> Endpoints:
    return Endpoints(components=f"at {name}", clients=f"at {name}")


class FakeHost:
    """Keeps assignments where a real one does. dying: the call in which its process ends.

    attaching: a runtime whose client attaches between a check of it and its end. restless: one that does not fall
    asleep until it is `woken`.
    """

    def __init__(self, name: str, descriptor_store: DescriptorStoreClient, dying: str = "") -> None:
        self.id = HostId(name)
        self.doors = at(name)
        self.dying = dying
        self.dismissed = threading.Event()
        self.bound: dict[str, Assignment] = {}
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.idle = 0.0
        self.attaching = self.restless = ""
        self.woken = threading.Event()
        self.busy: list[UnavailableError | None] = []
        """What its next calls to sleep and to be released raise, if anything."""
        self._descriptor_store = descriptor_store

    def bind(self, assignment: Assignment, *, begins: bool) -> None:
        self._live("bind")
        self.begun += [assignment.runtime] * begins
        if assignment.runtime in self.bound:
            raise NameExistsError(assignment.runtime)
        self._descriptor_store.put(KEY.format(assignment.runtime), assignment.record())
        self.bound[assignment.runtime] = assignment

    def fork(self, parent: str, branches: Sequence[Assignment], order: ForkOrder) -> ForkPoint:
        """The process dies, if it is to, before the last branch."""
        if parent not in self.bound:
            raise UnknownRuntimeError(parent)
        for branch in branches[:-1]:
            self.bind(branch, begins=True)
        self._live("fork")
        self.bind(branches[-1], begins=True)
        return ForkPoint(history=f"of {parent}", step=1)

    def end(self, runtime: str) -> None:
        if self.dying == "end":
            self._descriptor_store.drop(KEY.format(runtime))  # it got this far
        self._live("end")
        if self.bound.pop(runtime, None) is None:
            raise UnknownRuntimeError(runtime)
        self._descriptor_store.drop(KEY.format(runtime))
        self.ended.append(runtime)

    def end_idle(self, runtime: str, seconds: float) -> bool:
        if self.attaching == runtime:
            self.idle = 0.0
        if self.idle <= seconds:
            return False
        self.end(runtime)
        return True

    def rest(self, runtime: str, seconds: float = -1.0) -> bool:
        self._live("rest")
        if runtime == self.restless:
            self.woken.wait()
        self._be_busy()
        return self.idle > seconds

    def end_asleep(self, runtime: str) -> bool:
        self.end(runtime)
        return True

    def release(self, runtime: str) -> None:
        self._live("release")
        self._be_busy()
        self.end(runtime)

    def _be_busy(self) -> None:
        if self.busy and (error := self.busy.pop(0)) is not None:
            raise error

    def fact(self, runtime: str) -> ServedRuntimeStatus:
        self._live("fact")
        return self._fact(runtime)

    def facts(self) -> list[ServedRuntimeStatus]:
        self._live("facts")
        return [self._fact(runtime) for runtime in list(self.bound)]

    def deeds(self, written: Mapping[str, int]) -> EventBatch:
        self._live("deeds")
        return EventBatch(source=self.id, first=written.get(self.id, 0) + 1, deeds=())

    def _fact(self, runtime: str) -> ServedRuntimeStatus:
        one = self.bound[runtime]
        return ServedRuntimeStatus(
            runtime=one.runtime,
            tenant=one.tenant,
            clients=0,
            steps=0,
            running=False,
            idle=self.idle,
            lease=one.lease,
            quiet=self.idle,
            retention=Retention.of(one.keeping),
        )

    def dismiss(self) -> None:
        self.dismissed.set()

    def _live(self, call: str) -> None:
        if self.dismissed.is_set() or self.dying == call:
            raise HostGone(self.id)


class World:
    """A node whose hosts are hired from `staff`; when that is empty as one is requested, none can be started.

    coming: when they start, or it is reported that they do not. busy: whether no processor is idle.
    """

    def __init__(self, folder: Path) -> None:
        ensure_store(folder)
        self.descriptor_store = DescriptorStoreClient(folder)
        self.staff: list[FakeHost] = []
        self.coming = threading.Event()
        self.coming.set()
        references = NodeReferences(self.descriptor_store, "n", 1 << 20)
        self.now = self.pace = 0.0
        self.busy = False
        self.node = ClusterNode(
            node="n",
            folder=folder,
            most=4,
            hire=self._hire,
            references=references,
            clock=self._read_clock,
            idle=lambda: 0.0 if self.busy else self.now,
        )

    def host(self, name: str, dying: str = "") -> FakeHost:
        return FakeHost(name, self.descriptor_store, dying)

    def _read_clock(self) -> float:
        self.now += self.pace
        return self.now

    def _hire(self) -> None:
        hired = self.staff.pop(0) if self.staff else None
        threading.Thread(target=self._answer, args=(hired,), daemon=True).start()

    def _answer(self, hired: FakeHost | None) -> None:
        self.coming.wait(PATIENCE)
        if hired is not None:
            self.node.joined(hired, expected=True)
        else:
            self.node.not_hired()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "keeper")
    yield world
    world.descriptor_store.shut_down()


def assignment(runtime: str = "r", lease: float = 0.0) -> Assignment:
    return Assignment(runtime=runtime, tenant="t", policy=b"", lease=lease)


def test_a_host_that_could_not_be_asked_for_is_asked_for_later(world: World) -> None:
    """No call waits for a host that will not start."""
    hire, asked = world.node._hire, []

    def no_thread() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("can't start new thread")
        hire()

    world.node._hire = no_thread
    world.node.get_ready()
    world.staff.append(world.host("a"))
    assert at("a") == world.node.create(assignment())
    assert len(asked) > 1


def within(work: Callable[[], object]) -> object:
    """The call's result; a failure when it hangs."""
    given: list[object] = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert given, "it hangs or has failed"
    return given[0]


def test_an_assignment_is_read_as_it_was_written() -> None:
    """Keys included, which its repr does not show."""
    key = RuntimeKey(id="k", runtime=RuntimeId("r"), secret=b"\x00secret")
    kept = RuntimeStorage(store="s3://x", records="/r", durable=True, hibernate_after=1.5)
    written = Assignment(
        runtime="r", tenant="t", policy=b"\xff\x00", lease=1.5, created=2.0, keys=(key,), keeping=kept
    )
    assert written == Assignment.of_record(written.record())
    assert "secret" not in repr(written)


def test_a_creation_that_is_repeated_makes_nothing_more(world: World) -> None:
    """A caller that lost the answer repeats the call: the same host has it, once."""
    world.staff = [world.host("a"), world.host("b")]
    first = world.node.create(assignment())
    assert first == world.node.create(assignment())
    assert 1 == world.node.facts().runtimes


def test_a_further_host_is_started_when_nobody_waits_for_a_runtime(world: World) -> None:
    """It takes more than a processor-second. The first one starts at once, none while the node ends."""
    world.now = 100.0
    assert world.node.await_quiet()
    world.staff = [world.host("a")]
    world.node.create(assignment())
    world.pace, bound = QUIET / 2, world.now
    assert world.node.await_quiet()
    assert world.now >= bound + QUIET
    world.node.dissolve()
    assert not world.node.await_quiet()


@pytest.mark.slow
def test_a_further_host_is_started_when_a_processor_is_free_or_has_not_been_for_long(world: World) -> None:
    """Meanwhile calls use the existing hosts; it starts at once where there are none any more."""
    only = world.host("a")
    world.staff = [only]
    world.node.create(assignment())
    world.busy, world.pace, began = True, LONGEST_UNREST / 8, world.now
    assert world.node.await_quiet()
    assert world.now >= began + LONGEST_UNREST
    world.busy, began = False, world.now
    assert world.node.await_quiet()
    assert world.now < began + LONGEST_UNREST
    world.busy, world.pace = True, 0.0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(world.node.await_quiet)
        world.node.left(only.id)
        assert waiting.result(PATIENCE)


def test_a_host_that_dies_while_it_binds_is_replaced(world: World) -> None:
    """The call continues with the next one, though it holds the turn of a runtime that has become an orphan."""
    dying = world.host("a", dying="bind")
    world.staff = [dying, world.host("b")]
    assert at("b") == within(lambda: world.node.create(assignment()))
    assert dying.dismissed.is_set()


def test_a_host_that_dies_while_it_ends_a_runtime(world: World) -> None:
    """Another host takes over what is left and ends it, even where the assignment was already removed."""
    world.staff = [world.host("a", dying="end")]
    world.node.create(assignment())
    heir = world.host("b")
    world.node.joined(heir, expected=False)
    within(lambda: world.node.end("r"))
    assert [] == world.descriptor_store.keys()
    with pytest.raises(UnknownRuntimeError):
        world.node.locate("r")


def test_a_runtime_that_a_fresh_store_does_not_know_yet_is_ended(world: World) -> None:
    """Its host has it, and would otherwise put it into the descriptor store again and again."""
    host = world.host("a")
    world.staff = [host]
    world.node.create(assignment())
    world.descriptor_store.drop(KEY.format("r"))  # it was replaced, and is about to be filled again
    within(lambda: world.node.end("r"))
    assert ["r"] == host.ended
    with pytest.raises(UnknownRuntimeError):
        world.node.end("r")


def test_a_host_that_is_asked_in_vain_is_dismissed(world: World) -> None:
    """It may only seem to be dead: its runtimes cannot be taken over while it lives."""
    slow = world.host("a")
    world.staff = [slow]
    world.node.create(assignment())
    slow.dying = "facts"
    world.staff = [world.host("b")]
    world.node.runtimes()
    assert slow.dismissed.wait(PATIENCE)
    assert at("b") == within(lambda: world.node.locate("r"))


def test_branches_are_served_beside_their_parent(world: World) -> None:
    """By its host, though another one is idle; a repeated call creates nothing more."""
    world.staff = [world.host("a")]
    world.node.create(assignment())
    world.node.joined(world.host("b"), expected=False)
    branches = [assignment("one"), assignment("two")]
    first, again = (world.node.fork("r", branches, ForkOrder()) for _ in range(2))
    assert (ForkPoint(history="of r", step=1), first) == (first, again)
    assert (at("a"), at("a")) == (world.node.locate("one"), world.node.locate("two"))
    assert 3 == world.node.facts().runtimes
    with pytest.raises(UnknownRuntimeError):
        world.node.fork("nobody", branches, ForkOrder())


def test_a_host_that_dies_in_a_fork_leaves_no_branch(world: World) -> None:
    """Another host takes over what it had begun and ends it; the parent goes on."""
    dying = world.host("a", dying="fork")
    world.staff = [dying]
    world.node.create(assignment())
    world.staff = [world.host("b")]
    with pytest.raises(UnavailableError, match="with it"):
        world.node.fork("r", [assignment("one"), assignment("two")], ForkOrder())
    assert at("b") == within(lambda: world.node.locate("r"))
    assert [KEY.format("r")] == world.descriptor_store.keys("runtime/")
    assert 1 == world.node.facts().runtimes


def test_a_host_that_will_not_come_is_asked_for_once_more(world: World) -> None:
    """It was requested before it was needed, and the failure is reported when it is needed."""
    dying = world.host("a", dying="fork")
    world.staff = [dying]
    world.node.get_ready()
    assert at("a").components == world.node.any_address()
    world.coming.clear()
    world.node.create(assignment())  # and a host for the next one, which cannot be started
    world.staff = [world.host("b")]
    with ThreadPoolExecutor() as thread:
        branches = [assignment("one"), assignment("two")]
        forking = thread.submit(world.node.fork, "r", branches, ForkOrder())
        until(lambda: dying.dismissed.is_set() and world.node._news._waiters)  # type: ignore[attr-defined]
        world.coming.set()
        with pytest.raises(UnavailableError, match="with it"):
            forking.result(PATIENCE)
    assert at("b") == within(lambda: world.node.locate("r"))


def test_where_no_host_can_be_had_it_is_said_at_once(world: World) -> None:
    """Neither a creation nor a query waits for its whole timeout."""
    with pytest.raises(UnavailableError, match="try again"):
        world.node.create(assignment())
    with pytest.raises(UnavailableError, match="try again"):
        world.node.any_address()
    with pytest.raises(UnknownRuntimeError):
        world.node.locate("r")


def test_all_who_ask_at_once_are_told_the_same(world: World) -> None:
    """An orphan is bound once."""
    world.descriptor_store.put(KEY.format("r"), assignment().record())
    world.staff = [world.host("a"), world.host("b")]
    told: list[str] = []
    asking = [
        threading.Thread(target=lambda: told.append(world.node.locate("r")), daemon=True) for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(PATIENCE)
    assert (8, 1) == (len(told), len(set(told)))
    assert 1 == world.node.facts().runtimes


def test_an_agent_that_starts_finds_what_there_is(world: World) -> None:
    """Runtimes with a host stay there; the others are bound."""
    former = world.host("a")
    former.bind(assignment("served"), begins=True)
    world.descriptor_store.put(KEY.format("orphan"), assignment("orphan").record())
    world.node.joined(former, expected=False)
    world.node.find_orphans()
    assert {"served", "orphan"} == set(former.bound)
    assert ["served"] == former.begun


def test_a_lease_runs_out(world: World) -> None:
    """The runtime has had no client for longer than the lease; a runtime without a lease stays."""
    host = world.host("a")
    world.node.joined(host, expected=False)
    world.node.create(assignment("leased", lease=5.0))
    world.node.create(assignment("lasting"))
    world.now += ARRIVAL
    host.idle = 4.0
    world.node.sweep()
    assert [] == host.ended
    host.idle = 6.0
    world.node.sweep()
    assert ["leased"] == host.ended


def test_nobody_calls(world: World) -> None:
    """A runtime sleeps once it was idle for the given time; one that is only in the store is not on this node."""
    host = world.host("a")
    world.node.joined(host, expected=False)
    world.node.create(assignment("lasting"))
    world.node.create(
        replace(assignment("sleepy"), keeping=RuntimeStorage(durable=True, hibernate_after=5.0))
    )
    host.idle = 4.0
    world.node.sweep()
    assert [] == host.ended
    host.idle = 6.0
    world.node.sweep()
    until(lambda: ["sleepy"] == host.ended)
    with pytest.raises(UnknownRuntimeError):
        world.node.locate("sleepy")


def test_one_that_does_not_go_to_sleep(world: World) -> None:
    """It keeps those of its own tenant awake, and no others; a query for its location does not wait."""
    host, sleepy = world.host("a"), RuntimeStorage(durable=True, hibernate_after=5.0)
    world.node.joined(host, expected=False)
    for name, tenant in (("restless", "t1"), ("behind it", "t1"), ("another's", "t2")):
        world.node.create(replace(assignment(name), tenant=tenant, keeping=sleepy))
    host.idle, host.restless = 6.0, "restless"
    for _ in range(2):
        world.node.sweep()
        until(lambda: ["another's"] == host.ended)
    assert at("a") == world.node.locate("restless")
    host.woken.set()
    until(lambda: {"another's", "restless", "behind it"} == set(host.ended))


def test_a_client_that_comes_just_then_keeps_its_runtime(world: World) -> None:
    """Between the check for runtimes without a client and their end."""
    host = world.host("a")
    world.node.joined(host, expected=False)
    world.node.create(assignment("leased", lease=5.0))
    world.now += ARRIVAL
    host.idle, host.attaching = 6.0, "leased"
    world.node.sweep()
    assert [] == host.ended
    assert at("a") == world.node.locate("leased")


@pytest.mark.parametrize("located", [False, True])
def test_a_client_on_its_way_keeps_its_runtime(world: World, located: bool) -> None:
    """The client has the runtime's address, from its creation or since: a sweep before it arrives leaves the runtime,
    and a later one ends it.
    """
    host = world.host("a")
    world.node.joined(host, expected=False)
    world.node.create(assignment("leased", lease=5.0))
    host.idle = 6.0
    if located:
        world.now += ARRIVAL
        world.node.locate("leased")
    world.now += ARRIVAL - 1
    world.node.sweep()
    assert [] == host.ended
    world.now += 2
    world.node.sweep()
    assert ["leased"] == host.ended


def test_one_runtime_is_asked_after_alone(world: World) -> None:
    """Its host is asked for it and for no other; a host that dies during the call is replaced."""
    host = world.host("a")
    world.staff = [host]
    world.node.create(assignment())
    host.dying = "facts"
    assert "r" == world.node.runtime("r").runtime
    host.dying = "fact"
    world.staff = [world.host("b")]
    assert world.node.runtime("r") == within(lambda: world.node.runtime("r"))
    assert at("b") == world.node.locate("r")
    with pytest.raises(UnknownRuntimeError):
        world.node.runtime("other")


def test_who_was_hired_last_is_waited_for(world: World) -> None:
    """A node that ends knows all its hosts, so none is left."""
    coming = threading.Event()
    world.staff = [world.host("a")]
    world.coming = coming
    world.node.get_ready()
    ending = threading.Thread(target=world.node.dissolve, daemon=True)
    ending.start()
    assert 0 == world.node.facts().hosts
    coming.set()
    ending.join(PATIENCE)
    assert (1, False) == (world.node.facts().hosts, ending.is_alive())


DURABLE = RuntimeStorage(durable=True)


def test_durable_runtimes_leave_a_drained_node(world: World) -> None:
    """Whether they were idle or not; others stay, and are reported."""
    world.staff.append(host := world.host("a"))
    world.node.create(replace(assignment("kept"), keeping=DURABLE))
    world.node.create(assignment("other"))
    assert {"kept", "other"} >= world.node.drain(True).keys()
    until(lambda: ["kept"] == host.ended)
    assert {"other": False} == world.node.drain(True)
    assert world.node.facts().draining


def test_a_runtime_with_cells_leaves_between_two(world: World) -> None:
    """It is tried again until it sleeps; a call that comes just then wins, and it is tried once more."""
    world.staff.append(host := world.host("a"))
    world.node.create(replace(assignment("kept"), keeping=DURABLE))
    host.busy = [UnavailableError("a cell runs"), None, UnavailableError("a cell has just come"), None, None]
    world.node.drain(True)
    until(lambda: ["kept"] == host.ended)
    assert [] == host.busy


def test_a_node_that_is_drained_no_more_keeps_its_runtimes(world: World) -> None:
    world.staff.append(host := world.host("a"))
    world.node.drain(True)
    assert {} == world.node.drain(False)
    world.node.create(replace(assignment("kept"), keeping=DURABLE))
    world.node.sweep()
    assert {"kept": True} == world.node.drain(False)
    assert [] == host.ended
    assert not world.node.facts().draining
