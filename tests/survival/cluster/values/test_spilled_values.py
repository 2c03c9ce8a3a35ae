"""Shared values that do not fit in memory: on disk, unchanged, and removed with their last holder."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster.standing import store_process_of
from tests.waiting import until

from cenote_security.errors import QuotaExceededError, UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.execution.results import VariableInfo
from cenote_worker.node.references import NodeReferences
from cenote_worker.runtime.injection import Injection, from_record, to_record
from cenote_worker.serving.references import ReferenceOrigin
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.shared_quota import SharedQuota
from cenote_worker.transport.content import Content

INFO = VariableInfo(name="a", type="bytes", size=24, description="some")
HOME = ReferenceOrigin(tenant="t1", runtime="rt_1", step=4)
BIG = 300_000
ROOM = 1_000_000
"""Space for three of them."""


@contextmanager
def keeping(folder: Path) -> Iterator[DescriptorStoreClient]:
    ensure_store(folder)
    client = DescriptorStoreClient(folder)
    try:
        yield client
    finally:
        client.shut_down()


@pytest.fixture
def descriptor_store(tmp_path: Path) -> Iterator[DescriptorStoreClient]:
    with keeping(tmp_path / "keeper") as client:
        yield client


@pytest.fixture
def store(descriptor_store: DescriptorStoreClient) -> NodeReferences:
    return NodeReferences(descriptor_store, "n1", ROOM)


def put(store: NodeReferences, letter: str, size: int = BIG) -> str:
    data = letter.encode() * size
    return store.put(Content.pack([data]), INFO, HOME, holder="h", lease=60).id


def read(store: NodeReferences, reference: str) -> set[bytes]:
    """The letters that a value consists of."""
    content = store.content(reference, "t1")
    try:
        (part,) = content.unpack()
        assert BIG == len(part)
        return {bytes(part[place : place + 1]) for place in range(0, len(part), 4096)}
    finally:
        content.close()


def on_disk(descriptor_store: DescriptorStoreClient) -> set[str]:
    return {key.rpartition("/")[2] for key in descriptor_store.keys("spilled/")}


def inject(descriptor_store: DescriptorStoreClient, store: NodeReferences, reference: str) -> None:
    """Holds it as a runtime's host does for an injected value."""
    record, descriptors, content = to_record(injection_of(store, reference))
    descriptor_store.put("runtime/rt_1/injection/1", record, descriptors)
    content.close()


def injection_of(store: NodeReferences, reference: str) -> Injection:
    return Injection(values=store.content(reference, "t1"), single="a", names=("a",))


@pytest.mark.slow
def test_what_was_not_used_for_longest_goes_to_disk(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """The value is unchanged there: neither its content nor its description shows the difference."""
    first, second, third = put(store, "a"), put(store, "b"), put(store, "c")
    told = store.describe(second, "t1")
    read(store, first)
    fourth = put(store, "d")
    assert {second} == on_disk(descriptor_store)
    assert told == store.describe(second, "t1")
    assert [{b"a"}, {b"b"}, {b"c"}, {b"d"}] == [read(store, each) for each in (first, second, third, fourth)]
    assert [first, second, third, fourth] == sorted(
        (one.id for one in store.list("t1", after="", limit=9)), key=[first, second, third, fourth].index
    )
    assert (4, told.size * 4) == store.used()


def test_what_a_runtime_has_stays_in_memory(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """Where all are in use the new value goes to disk."""
    first, second, third = (put(store, letter) for letter in "abc")
    inject(descriptor_store, store, first)
    fourth = put(store, "d")
    assert {second} == on_disk(descriptor_store)
    assert {b"d"} == read(store, fourth)
    larger = store.put(Content.pack([bytes(ROOM)]), INFO, HOME, holder="h", lease=60).id
    assert {second, larger} == on_disk(descriptor_store)
    assert {b"c"} == read(store, third)


def test_a_runtime_that_is_taken_over_has_its_value_from_disk(store: NodeReferences) -> None:
    """It has no seals; it comes from the descriptor store, which is trusted."""
    references = [put(store, letter) for letter in "abcd"]
    record, descriptors, content = to_record(injection_of(store, references[0]))
    found = from_record(record, [os.dup(descriptor) for descriptor in descriptors], 1)
    (part,) = found.values.unpack()
    assert b"aaa" == bytes(part[:3])
    found.values.close()
    content.close()


def test_nobody_can_write_what_is_on_disk(store: NodeReferences) -> None:
    """By its descriptor; and writes to a user's own map stay private."""
    reference, *_ = [put(store, letter) for letter in "abcd"]
    content = store.content(reference, "t1")
    assert content.memory is not None
    fd = content.memory.fileno()
    assert os.O_RDONLY == fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    assert (0o400, 0) == (os.fstat(fd).st_mode & 0o777, os.fstat(fd).st_nlink)
    content.unpack()[0][:3] = b"xyz"
    content.close()
    assert {b"a"} == read(store, reference)


def test_nothing_is_left_of_what_was_on_disk(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """No descriptor in the descriptor store, and so no block on the disk, and no name in its folder."""
    names = set(os.listdir(descriptor_store.folder))
    assert [] == descriptor_store.keys()  # over the connection that all of this uses
    before = open_files(descriptor_store)
    for _ in range(5):
        references = [put(store, letter) for letter in "abcdefg"]
        assert len(on_disk(descriptor_store)) == 4
        for reference in references:
            store.release(reference, "t1", holder="h")
    assert [] == descriptor_store.keys()
    until(lambda: open_files(descriptor_store) <= before)
    assert names == set(os.listdir(descriptor_store.folder))


def open_files(descriptor_store: DescriptorStoreClient) -> int:
    return len(os.listdir(f"/proc/{store_process_of(descriptor_store.folder)}/fd"))


def test_a_full_disk_is_told_and_nothing_is_lost(
    descriptor_store: DescriptorStoreClient, store: NodeReferences
) -> None:
    """The value to be moved is still in memory, and the value that could not be stored has no lease."""
    references = [put(store, letter) for letter in "abc"]
    content = Content.pack([b"d" * BIG])
    with (
        files_of_at_most(BIG // 2),
        pytest.raises(UnavailableError, match=r"no room for 300\d+ bytes of them"),
    ):
        store.put(content, INFO, HOME, holder="h", lease=60)
    assert set() == on_disk(descriptor_store)
    assert [{b"a"}, {b"b"}, {b"c"}] == [read(store, reference) for reference in references]
    assert (3, 3) == (len(descriptor_store.keys("value/")), len(descriptor_store.keys("lease/")))
    assert {b"d"} == read(store, put(store, "d"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writes beyond it fail like those to a full disk (EFBIG instead of ENOSPC)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_memory_is_none() -> None:
    """It would gain nothing: then the limit on memory is the limit."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        keeping(Path(folder) / "keeper") as descriptor_store,
    ):
        store = NodeReferences(descriptor_store, "n1", ROOM)
        for letter in "abc":
            put(store, letter)
        with pytest.raises(UnavailableError, match="tmpfs, which is memory too"):
            put(store, "d")


def test_quotas_count_what_is_on_disk(descriptor_store: DescriptorStoreClient, tmp_path: Path) -> None:
    """A tenant's values count, wherever they are."""
    quotas = MachineQuotas(tmp_path / "quotas")
    store = NodeReferences(descriptor_store, "n1", ROOM, quotas=quotas)
    quotas.limit({"t1": {SharedQuota.STORED: 5 * BIG}})
    for letter in "abcd":
        put(store, letter)
    with pytest.raises(QuotaExceededError):
        put(store, "e")
    assert store.used()[1] == store.stored("t1") > 4 * BIG
    quotas.close()


def test_many_share_at_once(descriptor_store: DescriptorStoreClient) -> None:
    """Memory never exceeds its limit, and each client reads the value that it put."""
    wrong: list[object] = []

    def work(letter: str) -> None:
        store = NodeReferences(DescriptorStoreClient(descriptor_store.folder), "n1", ROOM)
        for _ in range(5):
            reference = put(store, letter)
            wrong.extend(read(store, reference) - {letter.encode()})
            # None comes back: what is in both lists was there at one moment, which one list alone does not show.
            together = {*descriptor_store.keys("value/")} & {*descriptor_store.keys("value/")}
            if sum(int(key.split("_")[-2], 16) for key in together) > ROOM:
                wrong.append("too much in memory")

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == wrong
    assert 20 == len(descriptor_store.keys("lease/"))
