"""A descriptor store that hangs delays no client that can do without it, and continues where it stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster.standing import store_process_of
from tests.support.descriptors import MEMORY, opened
from tests.waiting import PATIENCE, until

from cenote_security.errors import UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, StoredEntry, connect, ensure_store
from cenote_worker.descriptor_store.message import MAX_AWAITED, MAX_RECORD, StoreMessage, StoreOperation
from cenote_worker.execution.results import VariableInfo
from cenote_worker.node.references import NodeReferences
from cenote_worker.serving.references import ReferenceOrigin
from cenote_worker.transport.content import Content

OWN = f"{MEMORY}test"
"""The name of `memory`'s files: other descriptors of this process come and go."""

MORE = 3 * MAX_AWAITED
"""More messages than one socket takes without an answer."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "keeper"
    ensure_store(place)
    yield place
    client = DescriptorStoreClient(place)
    client.shut_down()


@pytest.fixture
def stopped(folder: Path) -> Iterator[int]:
    pid = store_process_of(folder)
    os.kill(pid, signal.SIGSTOP)
    yield pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def memory(text: bytes) -> int:
    descriptor = os.memfd_create("test")
    os.write(descriptor, text)
    return descriptor


def in_time(work: threading.Thread) -> bool:
    """Waiting five seconds for each answer would take many times that."""
    work.start()
    work.join(PATIENCE)
    return not work.is_alive()


def test_who_tells_much_does_not_wait(folder: Path, stopped: int) -> None:
    """More than a socket takes, too. Everything arrives when the store continues, each key with its newest entry."""
    client = DescriptorStoreClient(folder)

    def tell() -> None:
        for number in range(MORE):
            kept = memory(str(number).encode())
            client.put_soon(f"a/{number}", b"former", [kept])
            client.put_soon(f"a/{number}", b"newest", [kept])
            client.put_soon("b", str(number).encode(), [kept])
            os.close(kept)
        client.drop_soon("a/0")

    assert in_time(threading.Thread(target=tell, daemon=True))
    os.kill(stopped, signal.SIGCONT)
    assert sorted([*(f"a/{number}" for number in range(1, MORE)), "b"]) == client.keys()
    for number in range(1, MORE):
        kept = client.get(f"a/{number}")
        assert kept is not None
        assert (b"newest", str(number).encode()) == (kept.record, os.pread(kept.descriptors[0], 10, 0))
        os.close(kept.descriptors[0])
    kept = client.get("b")
    assert kept is not None
    assert str(MORE - 1).encode() == kept.record
    os.close(kept.descriptors[0])
    client.close()


def test_who_finds_no_thread_for_it_is_told_so(
    folder: Path, stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it continues when there is one: earlier messages have arrived."""
    client = DescriptorStoreClient(folder, answer=0.1)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for number in range(MAX_AWAITED):
            client.put_soon(f"a/{number}", b"")
        with pytest.raises(UnavailableError):
            client.put_soon("b", b"")
        with pytest.raises(UnavailableError):
            client.get("a/0")
    client.put_soon("c", b"")
    os.kill(stopped, signal.SIGCONT)
    until(lambda: client._teller.settle(0.1))
    assert MAX_AWAITED + 1 == len(client.keys())
    client.close()


def test_who_settles_has_nothing_waiting(folder: Path) -> None:
    """However many messages are sent, they take no descriptors: a process that fills a new store has thousands."""
    client = DescriptorStoreClient(folder)
    client.put_soon("a/0", b"")
    client.settle()
    kept = memory(b"")
    before = opened(OWN)
    for number in range(MORE):
        client.put_soon(f"a/{number}", b"", [kept])
        client.settle()
        assert before == opened(OWN)
    os.close(kept)
    assert MORE == len(client.keys("a/"))
    client.close()


def test_what_is_too_much_for_a_socket_waits_elsewhere(folder: Path, stopped: int) -> None:
    """By its bytes, which fill a socket before its messages do."""
    client = DescriptorStoreClient(folder)
    for number in range(8):
        client.put_soon(f"a/{number}", bytes(MAX_RECORD))
    os.kill(stopped, signal.SIGCONT)
    assert 8 == len(client.keys("a/"))
    client.close()


@pytest.mark.slow
def test_who_asks_is_told_that_it_hangs(folder: Path, stopped: int) -> None:
    """After a timeout the first time, and then at once; it delays no one-way sender. Its late answer is not taken for
    an answer to the next question.
    """
    client = DescriptorStoreClient(folder, answer=0.2)
    client.put_soon("a", b"told")
    for _ in range(3):
        with pytest.raises(UnavailableError, match="does not answer"):
            client.get("a")
    asking = DescriptorStoreClient(folder, answer=PATIENCE)
    late: list[object] = []
    waiting = threading.Thread(target=lambda: late.append(asking.get("a")), daemon=True)
    waiting.start()
    assert in_time(threading.Thread(target=asking.put_soon, args=("b", b"told"), daemon=True))
    impatient = DescriptorStoreClient(folder, answer=0.1)
    with pytest.raises(UnavailableError, match="does not answer"):
        impatient.keys()
    assert in_time(threading.Thread(target=lambda: [_refused(impatient) for _ in range(10_000)], daemon=True))
    os.kill(stopped, signal.SIGCONT)
    waiting.join(PATIENCE)
    assert b"told" == getattr(late[0], "record", None)
    kept = until(lambda: _got(impatient, "b"))
    assert b"told" == kept.record
    assert ["a", "b"] == until(lambda: _keys(impatient))
    for each in (client, asking, impatient):
        each.close()


def _refused(client: DescriptorStoreClient) -> bool:
    return _got(client, "a") is None


def _got(client: DescriptorStoreClient, key: str) -> StoredEntry | None:
    """None if the store takes longer than the client waits: this machine may be slow."""
    with suppress(UnavailableError):
        kept = client.get(key)
        assert kept is not None, key
        return kept
    return None


def _keys(client: DescriptorStoreClient) -> list[str]:
    """None likewise."""
    with suppress(UnavailableError):
        return client.keys()
    return []


def test_all_that_a_killed_process_has_told_is_there(folder: Path) -> None:
    """Even after an answer that was not read: before anything that its successor asks."""
    descriptor_store = store_process_of(folder)
    told, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        client = DescriptorStoreClient(folder)
        client.put_soon("a", b"answered")
        os.write(told[1], b"x")
        os.read(go_on[0], 1)
        for number in range(MAX_AWAITED - 1):
            client.put_soon(f"b/{number}", b"told")
        os.kill(os.getpid(), signal.SIGKILL)
    os.read(told[0], 1)
    with connect(folder) as line:  # so the store has answered the child
        StoreMessage(kind=StoreOperation.GET, key="a").send(line)
        assert b"answered" == getattr(StoreMessage.receive(line), "record", None)
    os.kill(descriptor_store, signal.SIGSTOP)
    try:
        os.write(go_on[1], b"x")
        os.waitpid(child, 0)
        line = connect(folder)
        StoreMessage(kind=StoreOperation.LIST, key="b/").send(line)
    finally:
        os.kill(descriptor_store, signal.SIGCONT)
    answer = StoreMessage.receive(line)
    for each in (*told, *go_on, line.detach()):
        os.close(each)
    assert answer is not None
    assert MAX_AWAITED - 1 == len(answer.record.splitlines())


def test_what_was_told_to_one_that_is_killed_goes_with_it(
    folder: Path, stopped: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Queued messages too; the sender continues with the next store, which others fill."""
    client = DescriptorStoreClient(folder)
    for number in range(MORE):
        client.put_soon(f"a/{number}", b"")
    os.kill(stopped, signal.SIGKILL)
    until(lambda: "since there is no descriptor store" in caplog.text)
    ensure_store(folder)
    client.put_soon("b", b"")
    assert ["b"] == client.keys()
    client.close()


def test_a_shared_value_is_not_looked_for_at_once(folder: Path) -> None:
    """The process that serves all others asks separately, where no client waits."""
    references = NodeReferences(DescriptorStoreClient(folder), "n", 1 << 20)
    record = references.put(
        Content(size=3, count=1, inline=b"abc"),
        VariableInfo(name="", type="bytes", size=3),
        ReferenceOrigin(tenant="t", runtime="r", step=1),
        holder="h",
        lease=60,
    )
    until(lambda: _here(references, record.id))
    os.kill(descriptor_store := store_process_of(folder), signal.SIGSTOP)
    try:
        assert in_time(threading.Thread(target=lambda: [_here(references, record.id) for _ in range(1000)]))
        assert not _here(references, record.id)
    finally:
        os.kill(descriptor_store, signal.SIGCONT)
    until(lambda: _here(references, record.id))


def _here(references: NodeReferences, reference: str) -> bool:
    content = references.content_here(reference, "t")
    if content is not None:
        content.close()
    return content is not None
