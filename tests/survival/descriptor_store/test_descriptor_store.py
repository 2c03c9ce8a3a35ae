"""A descriptor store holds descriptors under keys, whichever process put them there and whatever became of it."""

from __future__ import annotations

import errno
import os
import select
import selectors
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.processes import parent_of
from tests.waiting import PATIENCE

from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.descriptor_store import client as watch
from cenote_worker.descriptor_store import daemon
from cenote_worker.descriptor_store.client import (
    NOBODY,
    RETURN_SECONDS,
    DescriptorStoreClient,
    DescriptorStoreWatch,
    connect,
    ensure_store,
)
from cenote_worker.descriptor_store.message import (
    MAX_DESCRIPTORS,
    MAX_KEY,
    MAX_RECORD,
    StoreMessage,
    StoreOperation,
    StoreStatus,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / ("a folder whose name alone is too long for the address of a socket" * 2) / "keeper"
    place.parent.mkdir()
    ensure_store(place)
    yield place
    DescriptorStoreClient(place).shut_down()


@pytest.fixture
def descriptor_store(folder: Path) -> Iterator[DescriptorStoreClient]:
    client = DescriptorStoreClient(folder)
    yield client
    client.close()


def pid_of(folder: Path) -> int:
    with connect(folder) as line:
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int(struct.unpack("3i", credentials)[0])


def memory(text: bytes) -> int:
    descriptor = os.memfd_create("test")
    os.write(descriptor, text)
    return descriptor


def lingering(place: Path, **terms: float) -> socket.socket:
    """A connection to a store that lingers briefly: if it ends before the connection is made, it is started again."""
    while True:
        ensure_store(place, **terms)
        with suppress(*NOBODY):
            return connect(place)


def ended(pid: int) -> int:
    """A descriptor that is readable when the process has ended."""
    return os.pidfd_open(pid)


def watched(folder: Path) -> tuple[DescriptorStoreWatch, threading.Thread]:
    """A watch and its thread."""
    before = set(threading.enumerate())
    watching = DescriptorStoreWatch(folder)
    begun = set(threading.enumerate()) - before
    (thread,) = (one for one in begun if one.name == "cenote-store-watch")
    return watching, thread


def wait_readable(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)


def test_what_was_put_is_got(descriptor_store: DescriptorStoreClient) -> None:
    """A record and copies of the descriptors, any number of times; the putter may close its own."""
    mine = memory(b"kept")
    descriptor_store.put("a", b"record", [mine])
    os.close(mine)
    for _ in range(2):
        kept = descriptor_store.get("a")
        assert kept is not None
        (descriptor,) = kept.descriptors
        assert (b"record", b"kept") == (kept.record, os.pread(descriptor, 10, 0))
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)


def test_an_empty_message_is_no_end(folder: Path) -> None:
    """It is refused like any malformed message, and the connection stays open."""
    with connect(folder) as line:
        line.send(b"")
        StoreMessage(kind=StoreOperation.GET, key="a").send(line)
        refused, answer = StoreMessage.receive(line), StoreMessage.receive(line)
    assert refused is not None
    assert answer is not None
    assert (StoreStatus.REFUSED, StoreStatus.UNKNOWN) == (refused.kind, answer.kind)


def test_what_was_dropped_is_let_go(descriptor_store: DescriptorStoreClient) -> None:
    """Dropping and replacing close the stored descriptors: the other end of a pipe is closed."""
    for let_go in (lambda: descriptor_store.drop("a"), lambda: descriptor_store.put("a", b"")):
        reading, writing = os.pipe()
        descriptor_store.put("a", b"", [writing])
        os.close(writing)
        let_go()
        wait_readable(reading)
        assert b"" == os.read(reading, 1)
        os.close(reading)
    descriptor_store.drop("a")
    descriptor_store.drop("a")
    assert descriptor_store.get("a") is None


def test_what_is_told_by_a_killed_process_is_there(folder: Path) -> None:
    """Before anything that its successor asks, though the store hung until both had sent."""
    descriptor_store = pid_of(folder)
    os.kill(descriptor_store, signal.SIGSTOP)
    child = os.fork()
    if not child:
        DescriptorStoreClient(folder).put_soon("a", b"told", [memory(b"kept")])
        os.kill(os.getpid(), signal.SIGKILL)
    assert signal.SIGKILL == os.WTERMSIG(os.waitpid(child, 0)[1])
    with connect(folder) as line:
        StoreMessage(kind=StoreOperation.GET, key="a").send(line)
        os.kill(descriptor_store, signal.SIGCONT)
        answer = StoreMessage.receive(line)
    assert answer is not None
    assert b"told" == answer.record
    assert b"kept" == os.pread(answer.descriptors[0], 10, 0)
    os.close(answer.descriptors[0])


def test_who_tells_does_not_wait(folder: Path, descriptor_store: DescriptorStoreClient) -> None:
    """Not even for one answer; the next call reads it, and gets its own."""
    descriptor_store.put("a", b"former")
    end = pid_of(folder)
    os.kill(end, signal.SIGSTOP)
    descriptor_store.drop_soon("a")
    os.kill(end, signal.SIGCONT)
    descriptor_store.put_soon("b", b"1")
    descriptor_store.put_soon("b", b"2")
    kept = descriptor_store.get("b")
    assert (b"2", None) == (kept and kept.record, descriptor_store.get("a"))


def test_a_refusal_of_what_was_told_is_logged(
    descriptor_store: DescriptorStoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    """And is not taken for the answer to the next question."""
    descriptor_store.put_soon("k" * (MAX_KEY + 1), b"")
    assert descriptor_store.get("a") is None
    assert "kkk is not kept: the descriptor store refused: no room" in caplog.text


def test_who_has_told_a_killed_store_goes_on_with_the_next(folder: Path) -> None:
    """The messages are lost with the former store, as all its entries."""
    client = DescriptorStoreClient(folder, RETURN_SECONDS)
    client.put_soon("a", b"")
    end = ended(former := pid_of(folder))
    os.kill(former, signal.SIGKILL)
    wait_readable(end)
    os.close(end)
    ensure_store(folder)
    client.put_soon("b", b"")
    assert ["b"] == client.keys()
    client.close()


def test_keys_are_listed_by_their_beginning(descriptor_store: DescriptorStoreClient) -> None:
    """In order, also when they do not fit into one message."""
    names = [f"many/{number:05}/{'x' * 200}" for number in range(1500)]
    for name in names:
        descriptor_store.put(name, b"")
    descriptor_store.put("other", b"")
    assert names == descriptor_store.keys("many/")
    assert [*names, "other"] == descriptor_store.keys()
    assert [] == descriptor_store.keys("none")


def test_what_tenants_share_leaves_room_for_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the descriptors and of the entries, however small the values; released ones are available again."""
    monkeypatch.setattr(daemon, "MAX_ENTRIES", 20)
    ours, theirs = socket.socketpair()
    descriptor_store = daemon.DescriptorStore(listener=ours, linger=1, abandoned=1, table=8)

    def fits(key: str, descriptors: int = 0) -> bool:
        held = [os.dup(theirs.fileno()) for _ in range(descriptors)]
        return descriptor_store._put(StoreMessage(kind=1, key=key, descriptors=held)).kind == StoreStatus.DONE

    assert all(fits(key, 1) for key in ("value/t/1", "spilled/t/2", "runtime/r/injection/1", "value/t/3"))
    assert not fits("value/t/4", 1)
    assert fits("value/t/1", 1)
    descriptor_store._drop("value/t/1")
    assert fits("value/t/4", 1)
    assert all(fits(f"lease/t/{number}") for number in range(6))
    assert not fits("lease/t/6")
    assert fits("runtime/r/jail", 4)
    for key in list(descriptor_store._entries):
        descriptor_store._drop(key)
    assert (0, 0) == (descriptor_store._modest_entries, descriptor_store._modest_descriptors)
    ours.close()
    theirs.close()


def test_entries_are_bounded(descriptor_store: DescriptorStoreClient) -> None:
    """At each limit, and one past it; a refused entry changes nothing."""
    descriptor_store.put("k" * MAX_KEY, b"r" * MAX_RECORD)
    with pytest.raises(UnavailableError, match="no room"):
        descriptor_store.put("k" * (MAX_KEY + 1), b"")
    with pytest.raises(UnavailableError):
        descriptor_store.put("k", b"r" * (MAX_RECORD + 1))
    reading, writing = os.pipe()
    descriptor_store.put("all", b"", [reading] * MAX_DESCRIPTORS)
    with pytest.raises(UnavailableError, match="too much"):
        descriptor_store.put("more", b"", [reading] * (MAX_DESCRIPTORS + 1))
    assert ["all", "k" * MAX_KEY] == descriptor_store.keys()
    os.close(reading)
    descriptor_store.drop("all")
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)


@pytest.mark.parametrize("packet", [b"\x01", b"\x01\xff\xffkey", b"\x63\x00\x00", b"\x01\x01\x00\xff"])
def test_nonsense_is_refused_and_nothing_ends(
    folder: Path, descriptor_store: DescriptorStoreClient, packet: bytes
) -> None:
    """A client with a malformed message gets an answer; the others are not affected."""
    with connect(folder) as line:
        line.send(packet)
        answer = StoreMessage.receive(line)
    assert answer is not None
    assert StoreStatus.REFUSED == answer.kind
    descriptor_store.put("a", b"still here")


def test_many_threads_share_a_client(descriptor_store: DescriptorStoreClient) -> None:
    """Each gets the answer to its own question."""
    wrong: list[int] = []

    def ask(number: int) -> None:
        for _ in range(50):
            descriptor_store.put(f"{number}", str(number).encode())
            kept = descriptor_store.get(f"{number}")
            if kept is None or kept.record != str(number).encode():
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


def test_one_store_serves_a_folder(folder: Path) -> None:
    """Starting another is allowed, and starts none; it is no child of the starting process."""
    first = pid_of(folder)
    ensure_store(folder)
    assert first == pid_of(folder)
    assert os.getpid() not in (parent := parent_of(first), os.getsid(first)), parent


@pytest.mark.slow
def test_a_store_without_anything_ends(tmp_path: Path) -> None:
    """After a while without clients and entries; it removes its socket."""
    place = tmp_path / "keeper"
    with lingering(place, linger=0.5) as line:
        pid = int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        end = ended(pid)
        poll = select.poll()
        poll.register(end, select.POLLIN)
        assert [] == poll.poll(800)
    wait_readable(end)
    os.close(end)
    assert ["keeper.lock"] == os.listdir(place)


def test_a_client_that_cannot_be_watched_is_none() -> None:
    """As where the kernel has no memory for one more: its connection is closed, and does not keep the store alive."""

    class Full(selectors.DefaultSelector):
        def register(self, fileobj: object, events: int, data: object = None) -> NoReturn:
            raise OSError(errno.ENOMEM, "no memory")

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, Full() as selector:
        listener.bind(b"")
        listener.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(listener.getsockname())
            descriptor_store = daemon.DescriptorStore(listener=listener, linger=0.0, abandoned=0.0, table=100)
            descriptor_store._attend(selector, listener)
            assert b"" == line.recv(1)
            assert not descriptor_store._clients


def test_an_abandoned_store_ends(tmp_path: Path) -> None:
    """Its entries end with it: no process is left that could use them."""
    place = tmp_path / "keeper"
    client = DescriptorStoreClient(place)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with lingering(place, linger=0.5, abandoned=0.5):
        client.put("a", b"", [writer])
    os.close(writer)
    client.close()
    wait_readable(reader)
    assert b"" == os.read(reader, 1)
    os.close(reader)


@pytest.mark.slow
def test_a_store_with_an_entry_stays(tmp_path: Path) -> None:
    """No other process has the entry."""
    place = tmp_path / "keeper"
    client = DescriptorStoreClient(place)
    with lingering(place, linger=0.5):
        client.put("a", b"")
    end = ended(pid_of(place))
    client.close()
    poll = select.poll()
    poll.register(end, select.POLLIN)
    assert [] == poll.poll(800)
    client.shut_down()
    wait_readable(end)
    os.close(end)


def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """A user with write access there could serve in the store's place."""
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="0700"):
        ensure_store(place)


def test_a_client_without_a_store_says_so(tmp_path: Path) -> None:
    """It does not wait, and continues once there is one."""
    place = tmp_path / "keeper"
    place.mkdir(mode=0o700)
    client = DescriptorStoreClient(place)
    with pytest.raises(UnavailableError, match="descriptor store"):
        client.get("a")
    ensure_store(place)
    assert client.get("a") is None
    client.shut_down()


def test_a_store_that_was_killed_is_replaced_and_filled(folder: Path) -> None:
    """The watching process starts another and puts everything again."""
    client = DescriptorStoreClient(folder)
    filled = threading.Event()

    def refill() -> None:
        client.put("a", b"again")
        filled.set()

    watching = DescriptorStoreWatch(folder)
    watching.add(refill)
    client.put("a", b"first")
    former = pid_of(folder)
    os.kill(former, signal.SIGKILL)
    assert filled.wait(PATIENCE)
    assert former != pid_of(folder)
    assert b"again" == getattr(client.get("a"), "record", None)
    watching.close()
    client.close()


def test_a_watch_goes_on_where_no_store_can_be_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a start succeeds, and failed entries are put later: the machine may have memory again by then."""
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.01)
    began, starts, puts = threading.Event(), [], []

    def start(folder: Path) -> None:
        starts.append(folder)
        if len(starts) == 1:
            raise OSError(errno.ENOMEM, "no memory")
        ensure_store(folder)

    def refill() -> None:
        puts.append(1)
        if len(puts) < 3:
            raise UnavailableError("it does not answer")
        began.set()

    watching, thread = watched(folder)
    watching.add(refill)
    monkeypatch.setattr(watch, "ensure_store", start)
    os.kill(pid_of(folder), signal.SIGKILL)
    assert began.wait(PATIENCE)
    assert 2 == len(starts)
    watching.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_who_asks_while_a_store_is_replaced_waits_for_the_next(folder: Path) -> None:
    """Making a runtime at that moment succeeds."""
    client, answered = DescriptorStoreClient(folder, PATIENCE), threading.Event()

    def put() -> None:
        client.put("a", b"record")
        answered.set()

    end = ended(former := pid_of(folder))
    os.kill(former, signal.SIGKILL)
    wait_readable(end)
    os.close(end)
    asking = threading.Thread(target=put)
    asking.start()
    asking.join(0.2)
    assert (True, False) == (asking.is_alive(), answered.is_set())
    ensure_store(folder)
    asking.join(PATIENCE)
    assert answered.is_set()
    client.close()


def test_who_has_left_a_watch_puts_nothing_any_more(folder: Path) -> None:
    """Leaving waits for a put in progress: otherwise that entry would stay for ever, put after the end."""
    client, leaver = DescriptorStoreClient(folder), DescriptorStoreClient(folder, PATIENCE)
    reached, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def refill() -> None:
        """It may meet a store that is just ending; then it is called for the next one, unless it has left."""
        reached.set()
        go_on.wait(PATIENCE)
        client.put("a", b"")

    def leave() -> None:
        watching.remove(refill)
        leaver.drop("a")
        left.set()

    watching, thread = watched(folder)
    watching.add(refill)
    os.kill(pid_of(folder), signal.SIGKILL)
    assert reached.wait(PATIENCE)
    threading.Thread(target=leave).start()
    assert not left.wait(0.2)
    go_on.set()
    assert left.wait(PATIENCE)
    assert leaver.get("a") is None
    watching.close()
    thread.join(PATIENCE)  # it may still be about to start the next store, after this one has ended
    client.close()
    leaver.close()


def test_a_watch_that_is_closed_while_a_store_is_replaced_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch would be a client of the next store for ever."""
    starting, go_on = threading.Event(), threading.Event()

    def start_in_a_while(folder: Path) -> None:
        starting.set()
        go_on.wait(PATIENCE)
        ensure_store(folder)

    closed, thread = watched(folder)
    monkeypatch.setattr(watch, "ensure_store", start_in_a_while)
    os.kill(pid_of(folder), signal.SIGKILL)
    assert starting.wait(PATIENCE)
    closed.close()
    go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_message_fits_what_carries_it() -> None:
    """A packet fits the default send buffer, its descriptors the kernel's limit per message (SCM_MAX_FD)."""
    assert MAX_RECORD + MAX_KEY < 212_992 // 2
    assert MAX_DESCRIPTORS < 253
