"""Shared values in the descriptor store: they belong to no process that serves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote_security.errors import UnavailableError, UnknownReferenceError
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.execution.results import VariableInfo
from cenote_worker.node.references import COPY_SECONDS, NodeReferences, content_of, view_of
from cenote_worker.serving import references
from cenote_worker.serving.references import HeldReference, ReferenceOrigin, ReferenceRecord
from cenote_worker.serving.relay import holders_of
from cenote_worker.transport.content import Content

INFO = VariableInfo(name="a", type="list", shape=(3,), size=24, description="three")
HOME = ReferenceOrigin(tenant="t1", runtime="rt_1", step=4)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def nowhere(reference: str, _tenant: str) -> None:
    raise UnknownReferenceError(reference)


@pytest.fixture
def descriptor_store(tmp_path: Path) -> Iterator[DescriptorStoreClient]:
    folder = tmp_path / "keeper"
    ensure_store(folder)
    client = DescriptorStoreClient(folder)
    yield client
    client.shut_down()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(descriptor_store: DescriptorStoreClient, clock: Clock) -> NodeReferences:
    return NodeReferences(descriptor_store, "n1", 1 << 20, nowhere, clock, wall=clock)


def put(store: NodeReferences, data: bytes = b"value", holder: str = "h1", lease: float = 60) -> str:
    return store.put(Content.pack([data]), INFO, HOME, holder=holder, lease=lease).id


@pytest.mark.parametrize("size", [5, 200_000])
def test_what_was_put_can_be_had_by_other_processes(
    descriptor_store: DescriptorStoreClient, store: NodeReferences, size: int
) -> None:
    """A second reference store over the same descriptor store has the same bytes and describes them alike."""
    data = bytes(range(5)) * (size // 5)
    reference = put(store, data)
    other = NodeReferences(
        DescriptorStoreClient(descriptor_store.folder), "n1", 1 << 20, nowhere, Clock(), wall=Clock()
    )
    content = other.content(reference, "t1")
    assert [data] == [bytes(part) for part in content.unpack()]
    content.close()
    assert store.describe(reference, "t1") == other.describe(reference, "t1")
    found = other.describe(reference, "t1")
    assert (INFO, HOME, 1, "n1") == (found.info, found.origin, found.holders, found.node)


def test_what_is_here_is_given_at_once(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """To its tenant; a missing value, and one that would have to be fetched, is not returned."""
    reference = put(store)
    elsewhere = f"{reference.removesuffix('n1')}n2"
    given = store.content_here(reference, "t1")
    assert given is not None
    assert [b"value"] == [bytes(part) for part in given.unpack()]
    given.close()
    assert (None, None) == (store.content_here(reference, "t2"), store.content_here(elsewhere, "t1"))
    descriptor_store.shut_down()
    assert store.content_here(reference, "t1") is None


def test_values_of_one_tenant_are_bounded(store: NodeReferences, monkeypatch: pytest.MonkeyPatch) -> None:
    """One past the limit is refused, and leaves no lease."""
    monkeypatch.setattr(references, "MAX_VALUES", 2)
    kept = [put(store) for _ in range(2)]
    with pytest.raises(UnavailableError, match="2 shared values"):
        put(store)
    store.release(kept[0], "t1", holder="h1")
    put(store)


def test_another_tenant_sees_nothing(store: NodeReferences) -> None:
    """Not by id, not in a list, and it can neither hold nor release it."""
    reference = put(store)
    assert [] == store.list("t2", after="", limit=10)
    for ask in (
        lambda: store.describe(reference, "t2"),
        lambda: store.content(reference, "t2"),
        lambda: store.hold(reference, "t2", holder="h", lease=1),
        lambda: store.release(reference, "t2", holder="h1"),
    ):
        with pytest.raises(UnknownReferenceError):
            ask()
    assert [reference] == [one.id for one in store.list("t1", after="", limit=10)]


def test_a_value_goes_with_its_last_holder(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """Nothing of it stays in the descriptor store."""
    reference = put(store)
    assert 2 == store.hold(reference, "t1", holder="h2", lease=60).holders
    store.release(reference, "t1", holder="h1")
    assert 1 == store.describe(reference, "t1").holders
    store.release(reference, "t1", holder="h2")
    with pytest.raises(UnknownReferenceError):
        store.describe(reference, "t1")
    assert [] == descriptor_store.keys()


def test_a_value_goes_when_its_leases_are_over(
    descriptor_store: DescriptorStoreClient, store: NodeReferences, clock: Clock
) -> None:
    """A lease is never shortened; the sweep removes what no lease holds."""
    reference = put(store, lease=60)
    store.hold(reference, "t1", holder="h1", lease=10)
    clock.now += 59
    store.sweep()
    assert 1060.0 == store.describe(reference, "t1").expires
    clock.now += 2
    store.sweep()
    assert [] == descriptor_store.keys()


@pytest.mark.parametrize("years", [-1, 1])
def test_leases_do_not_follow_the_machines_time(descriptor_store: DescriptorStoreClient, years: int) -> None:
    """When the clock is set nothing goes, nothing stays longer, and the reported end follows the new time."""
    clock, wall = Clock(), Clock()
    store = NodeReferences(descriptor_store, "n1", 1 << 20, nowhere, clock, wall=wall)
    reference = put(store, lease=60)
    wall.now += years * 365 * 86_400
    store.sweep()
    assert wall.now + 60 == store.describe(reference, "t1").expires
    clock.now += 61
    store.sweep()
    assert [] == descriptor_store.keys()


def test_a_lease_on_what_is_gone_stays_nowhere(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """A hold that comes too late leaves no lease; a killed process's lease goes with the second sweep, since a
    value is stored after its first lease.
    """
    reference = put(store)

    class Late(NodeReferences):
        def describe(self, reference: str, tenant: str) -> ReferenceRecord:
            described = super().describe(reference, tenant)
            store.release(reference, tenant, holder="h1")
            return described

    with pytest.raises(UnknownReferenceError):
        Late(descriptor_store, "n1", 1 << 20, nowhere, Clock(), wall=Clock()).hold(
            reference, "t1", holder="late", lease=60
        )
    assert [] == descriptor_store.keys()
    descriptor_store.put("lease/t1/ref_00_5_n1/a holder/with a slash", b"99999.0")
    store.sweep()
    assert 1 == len(descriptor_store.keys())
    store.sweep()
    assert [] == descriptor_store.keys()


def test_holders_may_have_any_name(store: NodeReferences) -> None:
    """A holder whose name contains a slash protects its value from the sweep."""
    reference = put(store, holder="team/worker/1")
    store.sweep()
    assert 1 == store.describe(reference, "t1").holders


def test_a_successor_finds_what_a_killed_process_held(store: NodeReferences) -> None:
    """For one runtime, whatever the rest of the holders' names; not what others hold."""
    one, other = put(store, holder="runtime rt_1 call 1", lease=math.inf), put(store)
    store.hold(other, "t1", holder="runtime rt_1 handle 2 me", lease=math.inf)
    store.hold(other, "t1", holder="runtime rt_12 call 1", lease=math.inf)
    assert {
        HeldReference(reference=one, tenant="t1", holder="runtime rt_1 call 1"),
        HeldReference(reference=other, tenant="t1", holder="runtime rt_1 handle 2 me"),
    } == set(store.held_by(holders_of("rt_1")))


class Elsewhere:
    """A second node, which fetches missing values from a store of the first."""

    def __init__(self, first: NodeReferences, folder: Path, clock: Clock) -> None:
        ensure_store(folder)
        self.descriptor_store = DescriptorStoreClient(folder)
        self.store = NodeReferences(self.descriptor_store, "n2", 1 << 20, self._bring, clock, wall=clock)
        self.fetched: list[str] = []
        self._first = first

    def _bring(self, reference: str, tenant: str) -> None:
        self.fetched.append(reference)
        record, content = self._first.sealed(reference, tenant)
        try:
            self.store.adopt(
                reference, tenant, record, content_of(record, SealedMemory.create([view_of(content)]))
            )
        finally:
            content.close()


@pytest.fixture
def elsewhere(store: NodeReferences, tmp_path: Path, clock: Clock) -> Iterator[Elsewhere]:
    second = Elsewhere(store, tmp_path / "second", clock)
    yield second
    second.descriptor_store.shut_down()


def test_a_value_of_another_node_is_fetched_once(store: NodeReferences, elsewhere: Elsewhere) -> None:
    """After that this node has it too; its bytes do not reveal where it is."""
    reference = put(store, b"from afar" * 10_000)
    for _ in range(2):
        content = elsewhere.store.content(reference, "t1")
        assert [b"from afar" * 10_000] == [bytes(part) for part in content.unpack()]
        content.close()
    assert [reference] == elsewhere.fetched
    for unknown in ("ref_ff_5_n2", "nonsense"):
        with pytest.raises(UnknownReferenceError):
            elsewhere.store.content(unknown, "t1")
    assert [reference] == elsewhere.fetched


def test_a_copy_stays_while_it_is_used(store: NodeReferences, elsewhere: Elsewhere, clock: Clock) -> None:
    """Sweeps leave it for a minute after its last use, and remove it then; a later reader fetches it again."""
    reference = put(store)
    for _ in range(3):
        elsewhere.store.content(reference, "t1").close()
        clock.now += COPY_SECONDS - 1
        elsewhere.store.sweep()
    assert [reference] == elsewhere.fetched
    clock.now += 2
    elsewhere.store.sweep()
    assert [] == elsewhere.descriptor_store.keys()
    elsewhere.store.content(reference, "t1").close()
    assert [reference, reference] == elsewhere.fetched


def test_letting_go_of_what_is_elsewhere_fetches_nothing(store: NodeReferences, elsewhere: Elsewhere) -> None:
    """A release of what is not held is allowed, and costs nothing."""
    elsewhere.store.release(put(store), "t1", holder="h9")
    assert [] == elsewhere.fetched


def test_no_copy_is_made_of_what_another_tenant_has(store: NodeReferences, elsewhere: Elsewhere) -> None:
    """A copy belongs to the value's tenant."""
    reference = put(store)
    elsewhere.store.content(reference, "t1").close()
    with pytest.raises(UnknownReferenceError):
        elsewhere.store.content(reference, "t2")
    assert elsewhere.store.keeps(reference)
