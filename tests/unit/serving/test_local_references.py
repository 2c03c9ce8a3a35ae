"""LocalReferences: ids, holders, leases, limits. The clock is the test's."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest
from tests.support.descriptors import MEMORY, all_closed, opened
from tests.waiting import until

from cenote_security.errors import UnavailableError, UnknownReferenceError, UsageError
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import VariableInfo
from cenote_worker.serving import references
from cenote_worker.serving.references import MAX_HOLDERS, LocalReferences, ReferenceOrigin, ReferenceRecord
from cenote_worker.transport.content import Content

INFO = VariableInfo(name="x", type="bytes")
OURS = ReferenceOrigin(tenant="us", runtime="r", step=3)
SIZE = 100_000


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def content() -> Content:
    made = Content.of_bytes(bytes(SIZE))
    assert made.memory is not None
    return made


def put(store: LocalReferences, origin: ReferenceOrigin = OURS, lease: float = 10) -> ReferenceRecord:
    return store.put(content(), INFO, origin, holder="one", lease=lease)


def test_what_is_known_of_a_reference() -> None:
    """Its description, owner, creation time and lease."""
    store = LocalReferences(room=2 * SIZE, clock=Clock(), wall=Clock())
    record = put(store)
    assert (INFO, SIZE, 1, 1_000.0, 1_010.0, OURS) == (
        record.info,
        record.size,
        record.holders,
        record.created,
        record.expires,
        record.origin,
    )
    assert record == store.describe(record.id, "us")
    taken = store.content(record.id, "us")
    assert bytes(SIZE) == taken.whole()
    taken.close()
    store.close()


class Disk:
    """Where values go that do not fit in memory. full: whether it is full, too."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.full = False

    def write(self, memory: SealedMemory) -> SealedMemory:
        if self.full:
            raise UnavailableError("the disk is full")
        self.sizes.append(memory.size)
        return SealedMemory.create([os.pread(memory.fileno(), memory.size, 0)])


def filled(byte: int) -> Content:
    return Content.of_bytes(bytes([byte]) * SIZE)


def whole(store: LocalReferences, reference: str) -> bytes:
    taken = store.content(reference, "us")
    try:
        return taken.whole()
    finally:
        taken.close()


def test_what_memory_has_no_room_for_goes_to_disk() -> None:
    """The least recently used ones; all stay unchanged, and count as stored."""
    clock, disk = Clock(), Disk()
    store = LocalReferences(room=2 * SIZE, clock=clock, wall=clock, spill=disk.write)
    first, second = (store.put(filled(byte), INFO, OURS, holder="one", lease=1e6).id for byte in (1, 2))
    clock.now += 1
    assert bytes([1]) * SIZE == whole(store, first)
    clock.now += 1
    third = store.put(filled(3), INFO, OURS, holder="one", lease=1e6).id
    assert [SIZE] == disk.sizes
    assert [False, True, False] == [store._kept[each].spilled for each in (first, second, third)]
    assert [bytes([byte]) * SIZE for byte in (1, 2, 3)] == [
        whole(store, each) for each in (first, second, third)
    ]
    assert (3, 3 * SIZE) == store.used()
    assert 3 * SIZE == store.stored("us")
    store.release(first, "us", holder="one")
    store.put(filled(4), INFO, OURS, holder="one", lease=1e6)
    assert [SIZE] == disk.sizes, "memory has room again"
    store.close()


def test_a_value_that_is_larger_than_the_memory_for_all() -> None:
    """It goes to disk by itself, and moves no other value."""
    disk = Disk()
    store = LocalReferences(room=SIZE, spill=disk.write)
    small = store.put(filled(1), INFO, OURS, holder="one", lease=1e6).id
    large = store.put(Content.of_bytes(bytes(2 * SIZE)), INFO, OURS, holder="one", lease=1e6).id
    assert ([2 * SIZE], False) == (disk.sizes, store._kept[small].spilled)
    assert bytes(2 * SIZE) == whole(store, large)
    store.close()


def test_a_disk_that_is_full_refuses_the_value() -> None:
    """The stored ones stay."""
    disk = Disk()
    store = LocalReferences(room=SIZE, spill=disk.write)
    kept = store.put(filled(1), INFO, OURS, holder="one", lease=1e6).id
    disk.full = True
    with pytest.raises(UnavailableError, match="the disk is full"):
        store.put(filled(2), INFO, OURS, holder="one", lease=1e6)
    assert (1, SIZE) == store.used()
    assert bytes([1]) * SIZE == whole(store, kept)
    store.close()


def test_a_value_that_goes_while_it_moves() -> None:
    """Its holder released it meanwhile: nothing is left of it."""
    disk = Disk()
    store = LocalReferences(room=SIZE, spill=disk.write)
    first = store.put(filled(1), INFO, OURS, holder="one", lease=1e6).id
    write = disk.write

    def release_meanwhile(memory: SealedMemory) -> SealedMemory:
        store.release(first, "us", holder="one")
        return write(memory)

    store._spill = release_meanwhile
    store.put(filled(2), INFO, OURS, holder="one", lease=1e6)
    assert (1, SIZE) == store.used()
    with pytest.raises(UnknownReferenceError):
        store.describe(first, "us")
    store.close()


def test_an_id_is_not_guessed() -> None:
    """128 bits, and never twice."""
    store = LocalReferences(room=10 * SIZE)
    ids = {put(store).id for _ in range(5)}
    assert (5, {36}) == (len(ids), {len(one) for one in ids})
    store.close()


def test_it_goes_with_its_last_holder() -> None:
    """Its memory is freed too, except for runtimes that have mapped it."""
    store = LocalReferences(room=SIZE, clock=Clock(), wall=Clock())
    before = len(opened(MEMORY))
    record = put(store)
    store.hold(record.id, "us", holder="two", lease=10)
    store.release(record.id, "us", holder="one")
    store.release(record.id, "us", holder="one")
    taken = store.content(record.id, "us")
    store.release(record.id, "us", holder="two")
    with pytest.raises(UnknownReferenceError):
        store.describe(record.id, "us")
    until(lambda: len(opened(MEMORY)) <= before + 1)
    assert SIZE == len(taken.whole())
    taken.close()


def test_it_goes_with_its_last_lease() -> None:
    """Holding it twice extends the lease, and never shortens it."""
    clock = Clock()
    store = LocalReferences(room=SIZE, clock=clock, wall=clock)
    record = put(store, lease=10)
    store.hold(record.id, "us", holder="one", lease=20)
    store.hold(record.id, "us", holder="one", lease=5)
    clock.now = 1_019.9
    assert 1_020.0 == store.describe(record.id, "us").expires
    clock.now = 1_020.0
    with pytest.raises(UnknownReferenceError):
        store.describe(record.id, "us")
    store.close()


@pytest.mark.parametrize("years", [-1, 1])
def test_leases_do_not_follow_the_machines_time(years: int) -> None:
    """When the clock is set nothing goes, nothing stays longer, and the reported end follows the new time."""
    clock, wall = Clock(), Clock()
    store = LocalReferences(room=SIZE, clock=clock, wall=wall)
    record = put(store, lease=20)
    wall.now += years * 365 * 86_400
    assert (record.created, wall.now + 20) == (1_000.0, store.describe(record.id, "us").expires)
    clock.now += 20
    with pytest.raises(UnknownReferenceError):
        store.describe(record.id, "us")
    store.close()


def test_an_ended_lease_frees_the_memory_by_itself() -> None:
    """Also when there are no more calls."""
    store = LocalReferences(room=SIZE)
    with all_closed(MEMORY):
        put(store, lease=0.05)
    store.close()


def test_a_lease_without_end() -> None:
    """For holders that are sure to release."""
    clock = Clock()
    store = LocalReferences(room=SIZE, clock=clock, wall=clock)
    record = put(store, lease=math.inf)
    clock.now = 1e12
    assert record == store.describe(record.id, "us")
    store.close()


def test_another_tenant_has_nothing() -> None:
    """It cannot see, take, hold or release it; each call answers as if it did not exist."""
    store = LocalReferences(room=SIZE)
    record = put(store)
    with pytest.raises(UnknownReferenceError):
        store.describe(record.id, "them")
    with pytest.raises(UnknownReferenceError):
        store.content(record.id, "them")
    with pytest.raises(UnknownReferenceError):
        store.hold(record.id, "them", holder="one", lease=1)
    with pytest.raises(UnknownReferenceError):
        store.release(record.id, "them", holder="one")
    assert [] == store.list("them", after="", limit=10)
    store.close()


def test_pages() -> None:
    """In the order of ids, each once."""
    store = LocalReferences(room=10 * SIZE)
    ids = sorted(put(store).id for _ in range(5))
    first = store.list("us", after="", limit=3)
    rest = store.list("us", after=first[-1].id, limit=3)
    assert ids == [record.id for record in (*first, *rest)]
    store.close()


def test_room() -> None:
    """A value at the limit fits; one byte more is refused, and closed."""
    store = LocalReferences(room=SIZE)
    with all_closed(MEMORY):
        record = put(store)
        with pytest.raises(UnavailableError, match="no room"):
            put(store)
        store.release(record.id, "us", holder="one")
        put(store)
        store.close()


def test_values_of_one_tenant_are_bounded_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One past the limit is refused; another tenant is not affected, and a removed value frees its place."""
    monkeypatch.setattr(references, "MAX_VALUES", 3)
    store = LocalReferences(room=10 * SIZE)
    with all_closed(MEMORY):
        first, *_ = [put(store) for _ in range(3)]
        with pytest.raises(UnavailableError, match="3 shared values"):
            put(store)
        put(store, replace(OURS, tenant="others"))
        store.release(first.id, "us", holder="one")
        put(store)
        store.close()


def test_holders_are_bounded() -> None:
    """A holder at the limit is accepted; one past it is refused; an existing holder may hold again."""
    store = LocalReferences(room=SIZE, clock=Clock(), wall=Clock())
    record = put(store)
    for number in range(MAX_HOLDERS - 1):
        store._kept[record.id].leases[str(number)] = 2_000.0
    with pytest.raises(UsageError):
        store.hold(record.id, "us", holder="one too many", lease=1)
    assert MAX_HOLDERS == store.hold(record.id, "us", holder="one", lease=1).holders
    store.close()
