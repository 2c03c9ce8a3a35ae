"""What later jails of a runtime begin with: in the memory of a machine that others use as well."""

from __future__ import annotations

import pytest

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import RejectedError
from cenote_worker.content import Content
from cenote_worker.hosted.injection import NOTHING, Injection
from cenote_worker.hosted.legacy import NO_LEGACY, NoLegacy
from cenote_worker.hosted.noted import MAX_INJECTIONS, MAX_TIMES, NotedInjections

MEMORY = 1_000


def injection(name: str, size: int = 0) -> Injection:
    return Injection(values=Content(size=size, count=0, inline=b""), names=(name,), replaces=name)


def test_all_together_may_take_so_much_and_no_more() -> None:
    """Whatever they are called; one that takes the place of another takes its room as well."""
    noted = NotedInjections(NoLegacy())
    noted.add(injection("a", 2 * MEMORY))
    noted.check_room(injection("b", (MAX_TIMES - 2) * MEMORY), MEMORY)
    with pytest.raises(RejectedError, match="at the most"):
        noted.check_room(injection("b", (MAX_TIMES - 2) * MEMORY + 1), MEMORY)
    noted.check_room(injection("a", MAX_TIMES * MEMORY), MEMORY)


def test_what_is_said_of_host_functions_takes_room_as_well() -> None:
    """Clients write as much as they like there."""
    long = jail_pb2.HostTarget(name="f", signature="x" * MAX_TIMES * MEMORY)
    offer = Injection(values=NOTHING, hosts=(long,))
    with pytest.raises(RejectedError):
        NotedInjections(NoLegacy()).check_room(offer, MEMORY)


def test_there_may_be_so_many_and_no_more() -> None:
    """Empty ones, too."""
    noted = NotedInjections(NoLegacy())
    for number in range(MAX_INJECTIONS):
        noted.restore(injection(f"x{number}"))
    with pytest.raises(RejectedError, match="at most"):
        noted.check_room(injection("one more"), MEMORY)
    noted.check_room(injection("x0"), MEMORY)


def test_a_runtime_of_ones_own_process_has_no_such_limit() -> None:
    """Nothing is kept there for another process, and no tenant is next to it."""
    NotedInjections(NO_LEGACY).check_room(injection("a", MAX_TIMES * MEMORY + 1), MEMORY)
