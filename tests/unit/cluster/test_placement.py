"""Which host serves which runtime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cenote_worker.node.placement import HostId, NoRoomError, Placement

A, B = HostId("a"), HostId("b")


def test_one_each_while_there_are_enough() -> None:
    """A runtime gets the least loaded host; one more host is requested when none is free."""
    placement = Placement(most=2)
    assert placement.place("r1") is None
    assert placement.wants_more
    placement.joined(A)
    assert not placement.wants_more
    assert A == placement.place("r1")
    assert placement.wants_more
    placement.expect()
    assert not placement.wants_more
    placement.came()
    placement.joined(B)
    assert B == placement.place("r2")
    assert not placement.wants_more
    assert {A, B} == {placement.place("r3"), placement.place("r4")}
    assert (2, 4) == (placement.hosts, placement.runtimes)


def test_what_a_dead_host_served_has_to_be_served_by_others() -> None:
    """Its runtimes are returned, once."""
    placement = Placement(most=2)
    placement.joined(A, {"r1", "r2"})
    assert {"r1", "r2"} == placement.left(A)
    assert set() == placement.left(A)
    assert placement.host_of("r1") is None
    assert placement.wants_more


def test_who_was_removed_is_nowhere() -> None:
    """The call returns the runtime's host; a second call returns none."""
    placement = Placement(most=1)
    placement.joined(A, {"r1"})
    assert A == placement.remove("r1")
    assert placement.remove("r1") is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_the_load_is_even(removed: list[int]) -> None:
    """Without removals the hosts' numbers of runtimes differ by at most one."""
    placement = Placement(most=4)
    for number in range(4):
        placement.joined(HostId(str(number)))
    for number in range(len(removed)):
        placement.place(f"r{number}")
    loads = [sum(placement.host_of(f"r{n}") == str(h) for n in range(len(removed))) for h in range(4)]
    assert max(loads) - min(loads) <= 1


class PlacementMachine(RuleBasedStateMachine):
    """Hosts and runtimes come and go: each placed runtime is at exactly one living host or is an orphan."""

    def __init__(self) -> None:
        super().__init__()
        self.placement = Placement(most=3)
        self.hosts: set[HostId] = set()
        self.placed: set[str] = set()
        self.number = 0

    @rule()
    def host_joins(self) -> None:
        self.number += 1
        host = HostId(f"h{self.number}")
        self.placement.joined(host)
        self.hosts.add(host)

    @precondition(lambda self: self.hosts)
    @rule(data=st.data())
    def host_dies(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(sorted(self.hosts)))
        self.hosts.discard(host)
        self.placed -= self.placement.left(host)

    @precondition(lambda self: self.hosts)
    @rule()
    def runtime_comes(self) -> None:
        self.number += 1
        runtime = f"r{self.number}"
        assert self.placement.place(runtime) in self.hosts
        self.placed.add(runtime)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def runtime_ends(self, data: st.DataObject) -> None:
        runtime = data.draw(st.sampled_from(sorted(self.placed)))
        assert self.placement.remove(runtime) in self.hosts
        self.placed.discard(runtime)

    @invariant()
    def all_placed_are_somewhere(self) -> None:
        assert len(self.placed) == self.placement.runtimes
        assert all(self.placement.host_of(runtime) in self.hosts for runtime in self.placed)


TestPlacement = PlacementMachine.TestCase


def test_a_machine_with_places_takes_no_more_than_it_has() -> None:
    """One that is about to be made counts once, before it is placed and after; a failed one gives its place back."""
    placement = Placement(most=2, places=2)
    placement.joined(A, {"r1"})
    placement.admit("r2")
    with pytest.raises(NoRoomError, match="room for 2 runtimes"):
        placement.admit("r3")
    placement.place("r2")
    with pytest.raises(NoRoomError):
        placement.admit("r3")
    placement.admitted("r2")
    with pytest.raises(NoRoomError):
        placement.admit("r3")
    placement.remove("r2")
    placement.admit("r3")
    placement.admitted("r3")
    placement.admit("r4")


def test_only_an_empty_machine_closes() -> None:
    """From then on it takes nothing."""
    placement = Placement(most=2)
    placement.admit("r1")
    assert not placement.close()
    placement.admitted("r1")
    placement.joined(A, {"r2"})
    assert not placement.close()
    placement.remove("r2")
    assert placement.close()
    with pytest.raises(NoRoomError):
        placement.admit("r3")
