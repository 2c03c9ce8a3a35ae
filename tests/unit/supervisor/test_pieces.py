"""Memory in pieces: it arrives unchanged and sealed; violations of the protocol are refused."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.descriptors import MEMORY, all_closed

from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.transport.packets import (
    MAX_DESCRIPTORS,
    MORE,
    PACKET,
    PIECE,
    START,
    Packet,
    PacketAssembly,
    receive_packet,
    send_in_pieces,
)

LIMIT = 4 * PIECE
SIZES = st.lists(st.sampled_from([0, 1, PIECE - 1, PIECE, PIECE + 1]), max_size=MAX_DESCRIPTORS - 1)


@pytest.fixture
def assembly() -> Iterator[PacketAssembly]:
    made = PacketAssembly(LIMIT)
    yield made
    made.close()


def give(assembly: PacketAssembly, kind: int, number: int, data: bytes = b"") -> Packet | None:
    return assembly.take(Packet(bytes((kind, number)) + data, []))


def contents(packet: Packet) -> list[bytes]:
    """The contents of a packet's memories, which are closed."""
    found = [os.pread(memory, LIMIT, 0) for memory in packet.descriptors]
    packet.close()
    return found


def carried(data: bytes, memories: list[bytes]) -> Packet:
    """A packet that was sent in pieces over a real socket."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sealed = [SealedMemory.create([memory]) for memory in memories]
    with here, there:
        descriptors = [memory.fileno() for memory in sealed]
        sender = threading.Thread(target=send_in_pieces, args=(here, data, descriptors))
        sender.start()
        assembly, whole = PacketAssembly(LIMIT), None
        while whole is None:
            packet = receive_packet(there)
            assert packet is not None
            whole = assembly.take(packet)
        sender.join()
    for memory in sealed:
        memory.close()
    return whole


@given(st.binary(max_size=50), SIZES)
@settings(max_examples=25, deadline=None)
def test_what_arrives_is_what_was_sent(data: bytes, sizes: list[int]) -> None:
    """The packet and each of its memories, in order, at every size around a piece's."""
    memories = [bytes((number,)) * size for number, size in enumerate(sizes, 1)]
    whole = carried(data, memories)
    assert (data, memories) == (whole.data, contents(whole))


def test_memories_arrive_sealed() -> None:
    """The receiver checks that, as at other levels."""
    whole = carried(b"", [b"x" * 10])
    with SealedMemory.receive(whole.descriptors.pop(), max_size=10) as memory:
        assert b"x" * 10 == bytes(memory.map())


def test_what_an_interrupt_cut_off_is_forgotten_with_the_next_packet(assembly: PacketAssembly) -> None:
    """A packet that names no memory has none, whichever pieces came before it."""
    give(assembly, START, 0, b"half of")
    whole = give(assembly, PACKET, 0, b"news")
    assert whole is not None
    assert (b"news", []) == (whole.data, contents(whole))


def test_what_an_interrupt_cut_off_is_forgotten_with_the_next_memory(assembly: PacketAssembly) -> None:
    """A first memory starts again: it has no byte of the former one, whose room is free again."""
    give(assembly, START, 0, b"a" * (LIMIT - 1))
    give(assembly, START, 1, b"b")
    give(assembly, START, 0, b"c" * (LIMIT - 1))
    give(assembly, MORE, 0, b"d")
    whole = give(assembly, PACKET, 1)
    assert whole is not None
    assert [b"c" * (LIMIT - 1) + b"d"] == contents(whole)


@pytest.mark.parametrize(
    "packets",
    [
        [b""],
        [b"\x02"],
        [bytes((3, 0))],
        [bytes((MORE, 0)) + b"x"],
        [bytes((START, 1)) + b"x"],
        [bytes((START, 0)), bytes((START, 2))],
        [bytes((START, 0)), bytes((MORE, 1)) + b"x"],
        [bytes((PACKET, 1))],
        [bytes((START, 0)), bytes((PACKET, 2))],
        [bytes((START, number)) for number in range(MAX_DESCRIPTORS + 1)],
        [bytes((START, 0)) + b"x" * LIMIT, bytes((MORE, 0)) + b"x"],
    ],
    ids=["empty", "short", "unknown", "more of none", "second first", "gap", "not the last", "none sent", "too few",
         "too many", "over the limit"],
)  # fmt: skip
def test_what_the_protocol_has_no_place_for(assembly: PacketAssembly, packets: list[bytes]) -> None:
    """Order, numbers and sizes are checked piece by piece."""
    *before, last = packets
    for packet in before:
        assert assembly.take(Packet(packet, [])) is None
    with pytest.raises(ProtocolViolation):
        assembly.take(Packet(last, []))


def test_the_limit_is_for_all_memories_of_a_packet(assembly: PacketAssembly) -> None:
    """A packet at the limit passes; the next one has the full limit again."""
    for _ in range(2):
        give(assembly, START, 0, b"x" * (LIMIT - 1))
        give(assembly, START, 1, b"y")
        whole = give(assembly, PACKET, 2)
        assert whole is not None
        assert [LIMIT - 1, 1] == [len(memory) for memory in contents(whole)]


def test_a_descriptor_is_refused_and_closed(assembly: PacketAssembly) -> None:
    """No descriptor comes with pieces."""
    descriptor = os.memfd_create("unexpected")
    with pytest.raises(ProtocolViolation):
        assembly.take(Packet(bytes((PACKET, 0)), [descriptor]))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_no_room_ends_the_jail_and_nothing_else(assembly: PacketAssembly) -> None:
    """Where the client has no descriptor left, the jail's packet is refused, as at levels that pass descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(ProtocolViolation, match="cannot be kept"):
            give(assembly, START, 0, b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_is_left_open() -> None:
    """Incomplete packets are freed with the assembly."""
    with all_closed(MEMORY):
        assembly = PacketAssembly(LIMIT)
        for number in range(MAX_DESCRIPTORS):
            give(assembly, START, number, b"x")
        assembly.close()


@given(st.lists(st.binary(max_size=6), max_size=12))
@settings(max_examples=200)
def test_no_packets_do_more_than_be_refused(packets: list[bytes]) -> None:
    """The result is an incomplete packet, a packet with sealed memories, or a violation."""
    assembly = PacketAssembly(limit=16)
    try:
        for data in packets:
            whole = assembly.take(Packet(data, []))
            if whole is not None:
                assert sum(map(len, contents(whole))) <= 16
    except ProtocolViolation:
        pass
    finally:
        assembly.close()
