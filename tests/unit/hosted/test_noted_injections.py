"""Values that later jails of a runtime begin with: in the memory of a machine with other users."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from tests.support import descriptors
from tests.support.descriptors import all_closed

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import RejectedError
from cenote_worker.history.bounds import MAX_PUT_IN
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.runtime import injection_log as limits
from cenote_worker.runtime.handover.handover_log import NO_HANDOVER_LOG, NoHandoverLog
from cenote_worker.runtime.injection import NOTHING, Injection
from cenote_worker.runtime.injection_log import MAX_FORMER_VALUES, MAX_INJECTIONS, MAX_TIMES, InjectionLog
from cenote_worker.supervisor.requests import OWNER, AuthorSession
from cenote_worker.transport.content import INLINE_LIMIT, Content

MEMORY = 1_000


def injection(name: str, size: int = 0) -> Injection:
    return Injection(values=Content(size=size, count=0, inline=b""), names=(name,), replaces=name)


def memory(name: str, size: int) -> Injection:
    return Injection(values=Content.of_bytes(bytes(size)), names=(name,), replaces=name)


class EventsLost:
    """See Keep."""

    def add(self, _position: int, _event: Event) -> None:
        pass

    def shed(self, _position: int, _record: StepRecord) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def inode(injection: Injection) -> int:
    assert injection.values.memory is not None
    return os.fstat(injection.values.memory.fileno()).st_ino


def step(number: int, given: Injection) -> StepRecord:
    return StepRecord(number=number, kind="injection", names=given.names, content=given.content)


def test_all_together_may_take_so_much_and_no_more() -> None:
    """Whatever their names; a value that replaces another still adds to the room."""
    noted = InjectionLog(NoHandoverLog(), History())
    noted.add(injection("a", 2 * MEMORY))
    noted.check_room(injection("b", (MAX_TIMES - 2) * MEMORY), MEMORY)
    with pytest.raises(RejectedError, match="at the most"):
        noted.check_room(injection("b", (MAX_TIMES - 2) * MEMORY + 1), MEMORY)
    noted.check_room(injection("a", MAX_TIMES * MEMORY), MEMORY)


def test_what_is_said_of_host_functions_takes_room_as_well() -> None:
    """Their text has no other limit."""
    long = jail_pb2.HostTarget(name="f", signature="x" * MAX_TIMES * MEMORY)
    offer = Injection(values=NOTHING, hosts=(long,))
    with pytest.raises(RejectedError):
        InjectionLog(NoHandoverLog(), History()).check_room(offer, MEMORY)


def test_there_may_be_so_many_and_no_more() -> None:
    """Empty ones, too."""
    noted = InjectionLog(NoHandoverLog(), History())
    for number in range(MAX_INJECTIONS):
        noted.restore(injection(f"x{number}"))
    with pytest.raises(RejectedError, match="at most"):
        noted.check_room(injection("one more"), MEMORY)
    noted.check_room(injection("x0"), MEMORY)


def test_a_runtime_of_ones_own_process_has_no_such_limit() -> None:
    """No value is stored there for another process, and there is no other tenant."""
    InjectionLog(NO_HANDOVER_LOG, History()).check_room(injection("a", MAX_TIMES * MEMORY + 1), MEMORY)


@pytest.mark.parametrize("size", [5, INLINE_LIMIT + 1, MAX_PUT_IN])
@pytest.mark.parametrize("keep", [None, EventsLost()])
def test_small_values_that_were_replaced_can_always_be_had(size: int, keep: EventsLost | None) -> None:
    """Unchanged when the giver closes them: as descriptors while that costs nothing, then in the history; with a
    history that is written down, at once.
    """
    history = History(keep)
    noted = InjectionLog(NO_HANDOVER_LOG, history)
    with all_closed(descriptors.MEMORY):
        given = [memory("a", size) for _ in range(limits.MAX_FORMER_VALUES + 2)]
        for each in given:
            noted.add(each)
        assert 1 == len(noted.all())
        held = noted.former()
        assert (0 if keep or size == 5 else limits.MAX_FORMER_VALUES) == len(held)
        for each in given:
            again = noted.find(each.content)
            assert again is not None
            assert (("a",), "a", bytes(size)) == (again.names, again.replaces, again.values.whole())
            again.close()
        for each in held:
            each.close()
        noted.close()


def test_large_ones_are_held_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without copying them; the oldest is dropped first, and its step says so then. Jails' start values remain."""
    monkeypatch.setattr(limits, "MAX_FORMER", 2 * (MAX_PUT_IN + 1))
    history = History()
    noted = InjectionLog(NO_HANDOVER_LOG, history)
    with all_closed(descriptors.MEMORY):
        given = [memory("a", MAX_PUT_IN + 1) for _ in range(4)]
        for number, each in enumerate(given, 1):
            noted.add(each)
            history.ended(step(number, each))
        assert [False, True, True, True] == [noted.keeps(each.content) for each in given]
        assert [False, True, True, True] == [record.repeatable for record in history.tree]
        assert {} == history.values
        again = noted.find(given[1].content)
        assert again is not None
        assert inode(again) == inode(given[1])
        again.close()
        noted.close()


def test_no_more_is_held_than_a_runtime_may_have() -> None:
    """Small ones are in the history then."""
    noted = InjectionLog(NO_HANDOVER_LOG, History(), 2 * INLINE_LIMIT)
    with all_closed(descriptors.MEMORY):
        given = [memory("a", INLINE_LIMIT + 1) for _ in range(4)]
        for each in given:
            noted.add(each)
        former = noted.former()
        assert (1, [True] * 4) == (len(former), [noted.keeps(each.content) for each in given])
        for each in former:
            each.close()
        noted.close()


def test_so_many_are_held_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a descriptor."""
    monkeypatch.setattr(limits, "MAX_FORMER_VALUES", 2)
    noted = InjectionLog(NO_HANDOVER_LOG, History())
    with all_closed(descriptors.MEMORY):
        for _ in range(5):
            noted.add(memory("a", MAX_PUT_IN + 1))
        former = noted.former()
        assert 2 == len(former)
        for each in former:
            each.close()
        noted.close()


def test_what_a_former_process_has_held_is_said_to_be_gone() -> None:
    """By the runtime that continues its history; its own values are available."""
    history = History()
    gone, there = memory("a", MAX_PUT_IN + 1), memory("b", MAX_PUT_IN + 1)
    former = InjectionLog(NO_HANDOVER_LOG, History())
    for number, each in enumerate((gone, there), 1):
        former.identify(each)
        history.ended(step(number, each))
    noted = InjectionLog(NO_HANDOVER_LOG, history)
    noted.restore(there)
    noted.sweep()
    assert [False, True] == [record.repeatable for record in history.tree]
    gone.close()
    noted.close()


class Accepted(NoHandoverLog):
    """What a successor would receive, by the first names."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[str]]] = []

    def accept(self, injection: Injection | None, superseded: Sequence[Injection]) -> None:
        name = injection.names[0] if injection is not None else ""
        self.heard.append((name, [each.names[0] for each in superseded]))


@pytest.mark.parametrize("names", [["x"] * 60, [f"x{number}" for number in range(60)]], ids=["one", "many"])
def test_what_was_deleted_is_not_held(names: list[str]) -> None:
    """Put in and deleted in turns, under one name or many: a descriptor of each used to leak."""
    heard = Accepted()
    with all_closed(descriptors.MEMORY):
        noted = InjectionLog(heard, History())
        held = len(descriptors.opened(descriptors.MEMORY))
        for name in names:
            noted.add(Injection(values=Content.of_bytes(bytes(2 * INLINE_LIMIT)), names=(name,)))
            noted.deleted(name, OWNER)
        assert [] == noted.all()
        assert MAX_FORMER_VALUES >= len(descriptors.opened(descriptors.MEMORY)) - held
        noted.close()
    assert [each for name in names for each in ((name, []), ("", [name]))] == heard.heard


def test_what_a_later_one_stands_for_is_not_held() -> None:
    """Whichever client or cell removed the former value. A value with several names stays until all are gone."""
    noted = InjectionLog(NO_HANDOVER_LOG, History())
    both = Injection(values=NOTHING, names=("a", "b"))
    for given in (both, Injection(values=NOTHING, names=("c",)), Injection(values=NOTHING, names=("c",))):
        noted.add(given)
    assert [("a", "b"), ("c",)] == [each.names for each in noted.all()]
    noted.deleted("a", OWNER)
    noted.deleted("a", AuthorSession(author="ann", private=True))
    noted.deleted("b", AuthorSession(author="ann", private=True))
    assert both in noted.all()
    noted.add(Injection(values=NOTHING, names=("b",)))
    assert [("b",), ("c",)] == [each.names for each in noted.all()]


def test_private_names_are_others() -> None:
    """Of one author: common values of the same names stay, and so do another author's."""
    noted = InjectionLog(NO_HANDOVER_LOG, History())
    seats = (
        OWNER,
        AuthorSession(author="ann", private=True),
        AuthorSession(author="ben", private=True),
        AuthorSession(author="ann"),
    )
    for seat in seats[:3]:
        noted.add(Injection(values=NOTHING, names=("x",), seat=seat))
    noted.deleted("x", seats[1])
    assert [seats[0], seats[2]] == [each.seat for each in noted.all()]
    noted.deleted("x", seats[3])
    assert [seats[2]] == [each.seat for each in noted.all()]
