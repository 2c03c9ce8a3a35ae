"""No packet of a jail is lost or processed twice, wherever its reader is killed."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hosted.listening import Heard, NoHosts

from cenote_proto.v1 import jail_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.record.jail_journal import JailJournal
from cenote_worker.record.journal import TIDY_SIZE, Journal, JournalFile
from cenote_worker.supervisor.account.jail_account import UsageBaseline
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import JailRequest
from cenote_worker.transport.packets import send_packet

LIMIT = 100_000


class Killed(BaseException):
    """The process ends here."""


class MortalFile(JournalFile):
    """Ends its process after that many steps: each entry is one step before it is written and one after."""

    life = 1 << 30

    def append(self, entry: JournalEntry) -> None:
        self._step()
        super().append(entry)
        self._step()

    def successor(self) -> MortalFile:
        """As the next process opens it."""
        kept = os.dup(self.descriptor)
        self.close()
        return MortalFile(kept)

    def _step(self) -> None:
        self.life -= 1
        if self.life == 0:
            raise Killed


def journal_over(file: JournalFile) -> Journal:
    return Journal(file, LIMIT, lambda _descriptor: None, lambda: None)


def print_from(jail: socket.socket, text: str) -> None:
    frame = jail_pb2.WorkerFrame(output=jail_pb2.Output(text=text))
    jail.send(frame.SerializeToString())


def ask(jail_journal: JailJournal) -> None:
    request = JailRequest(RequestKind.EXECUTE, jail_pb2.Request(), Heard(), key="k", step=1)
    jail_journal.asked(1, request, 0.0, UsageBaseline())


def drain(jail_journal: JailJournal, sock: socket.socket) -> None:
    """Reads all available packets."""
    try:
        while True:
            packet = jail_journal.receive(sock)
            assert packet is not None
            packet.close()
    except BlockingIOError:
        pass


@given(texts=st.lists(st.sampled_from("ab"), max_size=5), lives=st.lists(st.integers(1, 12), max_size=3))
def test_each_packet_is_heard_once(texts: list[str], lives: list[int]) -> None:
    """Equal packets too: the kernel knows which of them was peeked at and not yet taken."""
    sock, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    file = MortalFile.create()
    journal = journal_over(file)
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    jail_journal.begin(sock)
    ask(jail_journal)
    for text in texts:
        print_from(jail, text)
    for life in [*lives, 1 << 30]:
        file.life = life
        try:
            drain(jail_journal, sock)
        except Killed:
            file = file.successor()
            journal = journal_over(file)
            jail_journal = JailJournal(journal, 1, LIMIT, lambda: None)
            jail_journal.take_up(sock, journal.story().current)
    story = journal.story()
    assert story.current.request is not None
    assert (0, "".join(texts)) == (
        (heard := story.current.request.printed.after(0))[0],
        "".join(text for _, text in heard[1]),
    )
    assert not story.current.untaken
    for end in (sock, jail):
        end.close()


def test_a_later_jail_is_not_mixed_up_with_the_former() -> None:
    """Packets of a dying jail do not affect the next one."""
    journal = journal_over(JournalFile.create())
    former = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    later = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    ask(later)
    former.printed("stdout", "last words")
    former.ended(JailExit(reason="killed"))
    story = journal.story()
    assert story.current.request is not None
    assert ((0, []), None) == (story.current.request.printed.after(0), story.current.ended)
    journal.close()


def test_memory_that_is_not_sealed_is_not_read() -> None:
    """Whatever a jail sends instead: reading it could block for ever, or kill the reader."""
    sock, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    journal = journal_over(JournalFile.create())
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    jail_journal.begin(sock)
    ask(jail_journal)
    reading, writing = os.pipe()
    frame = jail_pb2.WorkerFrame(display=jail_pb2.Display()).SerializeToString()
    send_packet(jail, frame, [reading])
    with SealedMemory.create([b"sealed"]) as memory:
        send_packet(jail, frame, [memory.fileno()])
    for _ in range(2):
        packet = jail_journal.receive(sock)
        assert packet is not None
        assert 1 == len(packet.descriptors)
        packet.close()
    story = journal.story()
    assert story.current.request is not None
    assert [[b""], [b"sealed"]] == [list(packet.attached) for packet in story.current.request.packets]
    for end in (sock, jail):
        end.close()
    os.close(reading)
    os.close(writing)
    journal.close()


def test_a_long_journal_is_written_anew() -> None:
    """A program that prints for ever fills no memory, and the new file is handed over before the old one ends."""
    handed: list[tuple[int, int]] = []

    def hand(file: int) -> None:
        handed.append((file, os.fstat(file).st_size))

    journal = Journal(JournalFile.create(), LIMIT, hand, lambda: None)
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    sock, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    jail_journal.begin(sock)
    ask(jail_journal)
    jail_journal.sent()
    for number in range(2_000):
        print_from(jail, f"{number:01000}")
        packet = jail_journal.receive(sock)
        assert packet is not None
    assert len(handed) > 3
    assert max(size for _, size in handed) < 2 * LIMIT
    assert os.fstat(handed[-1][0]).st_size < 2 * TIDY_SIZE + 4 * LIMIT
    story = journal.story()
    assert story.current.request is not None
    missing, pieces = story.current.request.printed.after(0)
    kept = "".join(text for _, text in pieces)
    assert 2_000_000 == missing + len(kept)
    assert kept.endswith(f"{1999:01000}")
    for end in (sock, jail):
        end.close()
    journal.close()


def test_what_must_stay_does_not_have_a_journal_written_anew_more_often() -> None:
    """A call that comes during a rewrite waits: the number of entries between two rewrites does not depend on the
    size of former outcomes.
    """
    handed: list[int] = []
    journal = Journal(
        JournalFile.create(), 1 << 20, lambda file: handed.append(os.fstat(file).st_size), lambda: None
    )
    between, result = [0], ExecutionResult(success=True, stdout="x" * 500)
    for number in range(2_000):
        before = len(handed)
        journal.settled(f"key {number}", result)
        journal.tidy(resting=True)
        between[-1] += len(result.stdout)
        if len(handed) > before:
            between.append(0)
    assert len(handed) > 2
    assert max(handed) > TIDY_SIZE // 2
    assert min(between[:-1]) > TIDY_SIZE * 0.9
    journal.close()


def test_what_comes_through_pipes_fills_no_memory_either() -> None:
    """A program that writes to its descriptor 1 for ever sends no packet, and the jail is never at rest."""
    file = JournalFile.create()
    sizes: list[int] = []
    journal = Journal(
        file, LIMIT, lambda descriptor: sizes.append(os.fstat(descriptor).st_size), lambda: None
    )
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    ask(jail_journal)
    for _ in range(200):
        jail_journal.printed("stdout", "y\n" * 8_192)
    assert len(sizes) > 3
    assert max(sizes) < 2 * LIMIT
    journal.close()


def test_host_calls_that_nobody_waits_for_leave_nothing() -> None:
    """A jail may call and cancel for as long as it likes: neither the journal nor its replay grows."""
    sock, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    journal = journal_over(JournalFile.create())
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    line = HostCallChannel(sock, NoAnswers(), LIMIT, log=jail_journal)
    for number in range(1, 101):
        called, cancelled = jail_pb2.HostRequest(), jail_pb2.HostRequest()
        called.call.id = cancelled.cancel.id = number
        for request in (called, cancelled):
            jail.send(request.SerializeToString())
            assert line.read(1)
    assert {} == journal.story().current.host_calls
    line.close()
    jail.close()
    journal.close()


@pytest.mark.slow
def test_a_journal_of_host_calls_alone_is_written_anew() -> None:
    """A cell that calls for hours may print nothing."""
    handed: list[int] = []
    journal = Journal(JournalFile.create(), LIMIT, handed.append, lambda: None)
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    sock, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    jail_journal.begin(sock)
    request = jail_pb2.HostRequest()
    for request.call.id in range(1, 40_000):
        jail.send(request.SerializeToString())
        assert jail_journal.receive_call(sock) is not None
        jail_journal.answered(request.call.id)
    assert handed
    for end in (sock, jail):
        end.close()
    journal.close()


class NoAnswers(NoHosts):
    """A HostHandler that carries nothing out."""

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        call.close()


@pytest.mark.parametrize("limit", [0, 1])
def test_a_machine_without_memory_is_no_reason_to_go_wrong(limit: int) -> None:
    """A journal that cannot be written is given up, once, and its user is informed."""
    given_up: list[bool] = []
    file = FullFile.create()
    file.room = limit
    journal = Journal(file, LIMIT, lambda _file: None, lambda: given_up.append(True))
    jail_journal = JailJournal(journal, journal.begin(None), LIMIT, lambda: None)
    ask(jail_journal)
    jail_journal.sent()
    assert [True] == given_up
    journal.close()


class FullFile(JournalFile):
    """Takes that many entries."""

    room = 0

    def append(self, entry: JournalEntry) -> None:
        if self.room <= 0:
            raise OSError("no space left on device")
        self.room -= 1
        super().append(entry)
