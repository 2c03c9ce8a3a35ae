"""Whatever a jail sends instead of its state, nothing outside is harmed and nothing wrong is stored."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.checkpoints.fixtures import put, store, writer_of
from tests.support.descriptors import MEMORY, all_closed
from tests.waiting import PATIENCE

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import ProtocolViolation
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.fidelity import MAX_MODULES, fidelity, missing_of
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.state import MAX_THINGS, parse_state
from cenote_worker.checkpoints.state_receiver import MAX_FIELDS, CheckpointReceiver
from cenote_worker.checkpoints.writer import CheckpointDraft
from cenote_worker.jail.state.checkpoint_transport import Shipment
from cenote_worker.transport.chunks import CHUNK, digest
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import receive_packet, send_packet

Packet = checkpoint_pb2.CheckpointPacket
LIMIT = 8 << 20


@pytest.fixture
def draft(folder: Path) -> Iterator[CheckpointDraft]:
    draft = writer_of(folder).begin()
    yield draft
    draft.discard()


def collected(
    draft: CheckpointDraft,
    jail: Callable[[socket.socket], None],
    given_up: Callable[[], str] = str,
    stalled: Callable[[float], str] = "".format,
) -> object:
    """What the receiver returns for a jail that does this at the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        acting = threading.Thread(target=jail, args=(theirs,))
        acting.start()
        try:
            return CheckpointReceiver(ours, draft, LIMIT, None, given_up, stalled).collect()
        finally:
            acting.join(PATIENCE)


def send(sock: socket.socket, packet: Packet, descriptors: list[int] | None = None) -> None:
    send_packet(sock, packet.SerializeToString(), descriptors)


def chunks_of(*contents: bytes, **lies: object) -> Packet:
    """A well-formed packet of chunks, except for the lies."""
    packet = Packet()
    packet.chunks.digests = b"".join(map(digest, contents))
    packet.chunks.lengths.extend(map(len, contents))
    packet.chunks.data.inline = b"".join(contents)
    packet.chunks.data.size = len(packet.chunks.data.inline)
    for name, lie in lies.items():
        if isinstance(lie, list):
            del packet.chunks.lengths[:]
            packet.chunks.lengths.extend(lie)
        else:
            setattr(packet.chunks, name, lie)
    return packet


def state_of(message: checkpoint_pb2.State) -> Packet:
    """Inline, however long it is."""
    packet = Packet()
    parts = struct.pack("<Q", message.ByteSize()).ljust(64, b"\0") + message.SerializeToString()
    packet.state.inline, packet.state.size, packet.state.count = parts, len(parts), 1
    return packet


def group(**part: object) -> checkpoint_pb2.State:
    """A state of one variable, with the given part."""
    message = checkpoint_pb2.State(names=["a"])
    message.groups.add(names=["a"], parts=[checkpoint_pb2.StoredPart(**part)])  # type: ignore[arg-type]
    return message


def test_what_a_copy_ships_arrives(draft: CheckpointDraft) -> None:
    """Chunks in batches, each once, then a state that consists of them."""
    content = os.urandom(20 * CHUNK + 7)

    def jail(sock: socket.socket) -> None:
        shipment = Shipment(sock, send_packet, set())
        message = checkpoint_pb2.State(names=["a"])
        message.groups.add(names=["a"], parts=[shipment.part(memoryview(content), dense=False)])
        shipment.state(message)

    state = collected(draft, jail)
    assert put(draft, {"a": content}).message.groups == state.message.groups  # type: ignore[attr-defined]
    assert 21 == len(draft.places)


LIES = {
    "a digest of something else": chunks_of(b"a", digests=digest(b"b")),
    "more digests than chunks": chunks_of(b"a", digests=2 * digest(b"a")),
    "half a digest": chunks_of(b"a", digests=digest(b"a")[:8]),
    "a chunk that is too long": chunks_of(b"a", lengths=[CHUNK + 1]),
    "chunks of no length": chunks_of(b"", lengths=[0]),
    "lengths that go beyond the data": chunks_of(b"a", lengths=[CHUNK]),
    "lengths that overflow": chunks_of(b"a", lengths=[2**32 - 1, 2]),
    "a state of chunks that were never sent": state_of(group(size=1, digests=digest(b"x"))),
    "a part with fewer chunks than its size": state_of(group(size=2**62, digests=digest(b"x"))),
    "a part with more chunks than its size": state_of(group(size=1, digests=2 * digest(b"x"))),
    "a group without a pickle": state_of(checkpoint_pb2.State(groups=[checkpoint_pb2.StoredGroup()])),
    "a name of a megabyte": state_of(checkpoint_pb2.State(names=["n" * 10_000])),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_checkpoint(lie: str, draft: CheckpointDraft) -> None:
    """Each is refused as such; no count, length or digest of a jail is trusted."""
    with pytest.raises(CheckpointRefusedError, match="broke the protocol"):
        collected(draft, lambda sock: send(sock, LIES[lie]))


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f"], ids=["empty", "noise", "huge length"]
)
def test_bytes_that_are_no_packet_end_it(data: bytes, draft: CheckpointDraft) -> None:
    """Noise, a length without its bytes, an end of the stream."""
    with pytest.raises(CheckpointRefusedError):
        collected(draft, lambda sock: send_packet(sock, data) if data else sock.close())


@pytest.mark.slow
def test_a_state_of_more_parts_than_any_has_is_not_parsed(draft: CheckpointDraft) -> None:
    """Two bytes are a file on the wire, and 80 in memory; a state may have 128 megabytes."""
    files = b"\x2a\0" * (MAX_FIELDS + 1)

    def jail(sock: socket.socket) -> None:
        packet, descriptors = Packet(), list[int]()
        state = Content.pack([files])
        state.to_wire(packet.state, descriptors)
        send(sock, packet, descriptors)
        state.close()

    with pytest.raises(CheckpointRefusedError, match="more parts"):
        collected(draft, jail)


def test_memory_that_can_still_be_changed_is_refused(draft: CheckpointDraft) -> None:
    """A digest of it would be valid for a moment only."""

    def jail(sock: socket.socket) -> None:
        unsealed = os.memfd_create("x")
        os.write(unsealed, b"a" * CHUNK)
        packet = Packet()
        packet.chunks.digests, packet.chunks.data.size = digest(b"a" * CHUNK), CHUNK
        packet.chunks.lengths.append(CHUNK)
        packet.chunks.data.attached = True
        send(sock, packet, [unsealed])
        os.close(unsealed)

    with pytest.raises(CheckpointRefusedError, match="broke the protocol"):
        collected(draft, jail)
    assert {} == draft.places


def test_descriptors_that_nothing_names_are_closed(draft: CheckpointDraft) -> None:
    """However many come, all are closed."""

    def jail(sock: socket.socket) -> None:
        with SealedMemory.create([b"x"]) as memory:
            send(sock, Packet(failure="no"), [memory.fileno()] * 3)

    with all_closed(MEMORY), pytest.raises(CheckpointRefusedError, match="no"):
        collected(draft, jail)


def test_more_than_the_runtime_may_have_is_refused(draft: CheckpointDraft) -> None:
    """A copy that keeps sending fills the store up to its limit, not the disk."""
    sent = 0

    def jail(sock: socket.socket) -> None:
        nonlocal sent
        shipment = Shipment(sock, send_packet, set())
        try:
            while sent <= 4 * LIMIT:
                shipment.part(memoryview(os.urandom(CHUNK)), dense=False)
                sent += CHUNK
        except OSError:
            return

    with pytest.raises(CheckpointRefusedError, match="too long or too many"):
        collected(draft, jail)
    assert sent <= 3 * LIMIT


def test_a_state_has_so_many_names_and_no_more() -> None:
    """At the limit, and one past it; before objects are made of them."""
    parse_state(checkpoint_pb2.State(names=[""] * MAX_THINGS), LIMIT)
    with pytest.raises(ProtocolViolation):
        parse_state(checkpoint_pb2.State(names=[""] * (MAX_THINGS + 1)), LIMIT)


def test_a_state_has_so_many_bytes_and_no_more() -> None:
    """Claimed bytes count: two parts may name the same chunks."""
    part = {"size": LIMIT // 2, "digests": digest(b"a") * (LIMIT // 2 // CHUNK)}
    message = checkpoint_pb2.State()
    for _ in range(2):
        message.groups.add(parts=[checkpoint_pb2.StoredPart(**part)])
    parse_state(message, LIMIT)
    with pytest.raises(ProtocolViolation):
        parse_state(message, LIMIT - 1)


@pytest.mark.slow
def test_a_silent_copy_is_given_up(draft: CheckpointDraft) -> None:
    """When the caller reports that it is late."""
    over = threading.Event()
    with pytest.raises(CheckpointRefusedError, match="too late"):
        collected(draft, lambda _: None, lambda: over.set() or "it is too late")  # type: ignore[func-returns-value]
    assert over.is_set()


@pytest.mark.slow
def test_a_copy_that_stalls_is_given_up(draft: CheckpointDraft) -> None:
    """When one of its parts takes too long, however much time the whole has."""
    with pytest.raises(CheckpointRefusedError, match="for seconds"):
        collected(draft, lambda _: None, stalled=lambda seconds: "silent for seconds" if seconds else "")


def test_a_copy_that_never_falls_silent_is_given_up_as_well(draft: CheckpointDraft) -> None:
    """Packets without a chunk reach no limit of bytes: the time limit ends them."""
    over = threading.Event()

    def jail(sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        with suppress(OSError):
            for _ in range(100_000):
                send(sock, chunks_of())
                receive_packet(sock)
                over.set()

    with pytest.raises(CheckpointRefusedError, match="too late"):
        collected(draft, jail, lambda: "it is too late" if over.is_set() else "")


def test_what_failed_is_not_stored(folder: Path) -> None:
    """A failed checkpoint leaves the one before, and its chunks are not used."""
    writer = writer_of(folder)
    store(writer, a=b"a")
    draft = writer.begin()
    with pytest.raises(CheckpointRefusedError, match=r"MemoryError\\n"):
        collected(draft, lambda sock: send(sock, Packet(failure="MemoryError\n")))
    draft.discard()
    assert 2 == store(writer, a=b"a").number


def test_each_batch_waits_for_the_one_before(draft: CheckpointDraft) -> None:
    """So that a copy needs memory for one batch, whatever it sends."""
    answers = []

    def jail(sock: socket.socket) -> None:
        for content in (b"a", b"b"):
            send(sock, chunks_of(content))
            answers.append(receive_packet(sock))
        send(sock, state_of(group(size=1, digests=digest(b"a"))))

    collected(draft, jail)
    assert 2 == len(answers)
    assert None not in answers


def test_what_will_be_missing_is_told_in_lines_of_its_own() -> None:
    """Of names, reasons and versions that a jail has invented; and only modules are looked up."""
    state = checkpoint_pb2.State(python="3.11\x1b[2J", machine="x\ny")
    state.unkept.add(name="a\nb", reason="\x1b[31mred")
    for name in ("", "../../etc", "pip"):
        state.modules.add(name=name, version="0\r")
    missing = missing_of(parse_state(state, LIMIT))
    assert 2 <= len(missing)
    assert all(line.isprintable() for line in missing)


def test_so_many_versions_are_compared_and_no_more() -> None:
    """Each is looked up among the packages of this process."""
    state = checkpoint_pb2.State()
    for module in [*["nowhere"] * (MAX_MODULES - 1), "pytest", "numpy"]:
        state.modules.add(name=module, version="0")
    (note,) = versions(state)
    assert note.startswith("pytest")


def versions(state: checkpoint_pb2.State) -> tuple[str, ...]:
    """The notes on a checkpoint of this state."""
    manifest = Manifest(
        number=1, parent=0, fence=0, label="", made=0.0, state=parse_state(state, LIMIT), chunks={}
    )
    return fidelity(manifest, ()).notes
