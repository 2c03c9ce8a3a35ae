"""A state on its way to its branches, in memory that all of them map: separate bytes, and hostile jails."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from tests.support.descriptors import all_closed
from tests.waiting import PATIENCE

from cenote.runtime import IncompleteForkError, PythonRuntime
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.errors import MalformedValueError
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import FillableMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.state_receiver import ReceivedState, StateReceiver
from cenote_worker.jail.state.checkpoint_transport import StateHandover
from cenote_worker.transport import content as placed_parts
from cenote_worker.transport.content import INLINE_LIMIT
from cenote_worker.transport.packets import receive_packet, send_packet

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]
Jail = Callable[[socket.socket], None]

LIMIT = 8 << 20
LARGE = placed_parts.LARGE

VALUES = """
import numpy, pandas
large = numpy.zeros((500, 1000))
part = large[10:20, ::2]
small = numpy.zeros(3000)
turned = numpy.zeros((300, 400)).T
flat = bytearray(1_000_000)
frame = pandas.DataFrame({"n": numpy.zeros(60_000), "m": numpy.zeros(60_000), "t": ["x"] * 60_000})
def seen():
    return [float(each.sum()) for each in (large, part, small, turned, frame[["n", "m"]].to_numpy())] + [sum(flat)]
"""

WRITES = """
part[0, 0] = 1
small[:] = 1
turned[0] = 1
flat[:3] = b"\\1\\1\\1"
frame.loc[5, "n"] = 1
"""


def value(runtime: PythonRuntime, expression: str) -> str | None:
    result = runtime.execute(expression)
    assert result.success, result.error
    return result.value


@pytest.mark.slow
def test_what_is_written_in_one_is_seen_in_no_other(make: Make, fork: Fork) -> None:
    """Arrays large and small, views, frames and bytes: each side has its own, views share with their array."""
    source = make(sandbox=SandboxPolicy())
    assert source.execute(VALUES).success
    one, two = fork(source, 2)
    assert one.execute(WRITES).success
    source.execute("small[0] = 7")
    assert "[1.0, 1.0, 3000.0, 300.0, 1.0, 3]" == value(one, "seen()")
    assert "[0.0, 0.0, 0.0, 0.0, 0.0, 0]" == value(two, "seen()")
    assert "[0.0, 0.0, 7.0, 0.0, 0.0, 0]" == value(source, "seen()")


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["auto", "watchdog"])
def test_the_jail_that_is_forked_does_not_pay_for_the_copy(make: Make, fork: Fork, limits: Any) -> None:
    """A state of more than half of the memory limit is copied all the same; a branch's writes count for it."""
    source = make(sandbox=SandboxPolicy(memory="256MiB", preload=("numpy",), limits=limits))
    assert source.execute("import numpy\na = numpy.ones(18 * 2**20)").success
    (branch,) = fork(source)
    assert "18874368.0" == value(branch, "float(a.sum())")
    assert not branch.execute("a += 1; b = numpy.ones(30 * 2**20)").success
    assert "18874368.0" == value(source, "float(a.sum())")


@pytest.mark.usefixtures("by_value")
def test_what_cannot_be_rebuilt_is_named(make: Make, fork: Fork) -> None:
    """It fails in the branch only, and its step cannot be repeated. With `partial` the rest is copied."""
    source = make()
    source.execute(
        "def fail(): raise ValueError('not here')\nclass Odd:\n    def __reduce__(self): return fail, ()"
    )
    source.execute("import time\nx = 5 if time.time() else 0\nodd = Odd()")
    with pytest.raises(IncompleteForkError, match="odd: it cannot be rebuilt: ValueError: not here"):
        source.fork(count=2)
    (branch,) = fork(source, partial=True)
    assert "(5, False)" == value(branch, "(x, 'odd' in globals())")


# -- hostile senders --


def received(jail: Jail) -> ReceivedState:
    """What the receiver returns for a jail that does this at the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        acting = threading.Thread(target=jail, args=(theirs,))
        acting.start()
        try:
            return StateReceiver(ours, LIMIT, None, str, nullcontext).receive()
        finally:
            acting.join(PATIENCE)


def send(sock: socket.socket, **fields: object) -> None:
    send_packet(sock, checkpoint_pb2.CheckpointPacket(**fields).SerializeToString())  # type: ignore[arg-type]


def room(sock: socket.socket, size: int) -> int:
    """A descriptor of memory from the other end."""
    send(sock, room=size)
    packet = receive_packet(sock)
    assert packet is not None
    return packet.descriptors[0]


def finish(sock: socket.socket, *sizes: int, process: bool = True) -> None:
    """Reports parts of these sizes."""
    state = checkpoint_pb2.State()
    if process:
        state.process.parts.add(size=0)
    for size in sizes:
        state.groups.add(parts=[checkpoint_pb2.StoredPart(size=size)])
    StateHandover(sock, send_packet, in_pieces=False).state(state)


@pytest.mark.parametrize("size", [10, INLINE_LIMIT, LARGE, 3 * LARGE])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_what_a_copy_hands_over_arrives(size: int, in_pieces: bool) -> None:
    """Inline or in memory, it is sealed, and each reader has its own copy of each part."""
    content = os.urandom(size)

    def jail(sock: socket.socket) -> None:
        handover = StateHandover(sock, send_packet, in_pieces=in_pieces)
        state = checkpoint_pb2.State()
        state.process.parts.append(handover.part(memoryview(b"process"), dense=True))
        state.groups.add(parts=[handover.part(memoryview(content), dense=False)])
        handover.state(state)

    whole = received(jail)
    (memory,) = whole.memories
    first = placed_parts.part_views(memory, [7, size])
    first[1][0] ^= 1
    again = placed_parts.part_views(memory, [7, size])
    whole.close()
    assert [b"process", content] == [bytes(part) for part in again]


def _keeps_a_map(sock: socket.socket) -> None:
    memory = room(sock, LARGE)
    with mmap.mmap(memory, LARGE) as pages:
        os.close(memory)
        finish(sock, LARGE)
        sock.recv(1)  # until the other end is closed
        pages.close()


def _brings_a_pipe(sock: socket.socket) -> None:
    packet = checkpoint_pb2.CheckpointPacket()
    packet.held.size, packet.held.attached = LARGE, True
    reader, writer = os.pipe()
    send_packet(sock, packet.SerializeToString(), [reader])
    os.close(reader)
    os.close(writer)


def _seals_too_early(sock: socket.socket) -> None:
    import fcntl

    memory = room(sock, LARGE)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    os.close(memory)
    finish(sock, LARGE)


LIES: dict[str, Jail] = {
    "more than it may have": lambda sock: send(sock, room=LIMIT + 1),
    "as much as a number holds": lambda sock: send(sock, room=2**64 - 1),
    "more than it may have, in two": lambda sock: (os.close(room(sock, LIMIT)), send(sock, room=1))[-1],
    "three memories": lambda sock: [os.close(room(sock, 1)) for _ in range(2)] and send(sock, room=1),
    "a state that no memory came for": lambda sock: finish(sock, LARGE),
    "a memory that the state does not fill": lambda sock: (os.close(room(sock, 2)), finish(sock, 1))[-1],
    "a memory that the state goes beyond": lambda sock: (os.close(room(sock, 2)), finish(sock, 3))[-1],
    "sizes that overflow": lambda sock: (os.close(room(sock, 2)), finish(sock, 2**64 - 1, 3))[-1],
    "no state of the process": lambda sock: (os.close(room(sock, 2)), finish(sock, 2, process=False))[-1],
    "chunks": lambda sock: send(sock, chunks=checkpoint_pb2.FreshChunks()),
    "memory that it can still write to": _keeps_a_map,
    "memory that it keeps from being sealed": _seals_too_early,
    "a pipe for memory": _brings_a_pipe,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_fork(lie: str) -> None:
    """Each is refused as such, and the memory given for it is freed."""
    with all_closed(), pytest.raises(CheckpointRefusedError, match="broke the protocol"):
        received(LIES[lie])


def test_a_sealed_room_is_nobodys_to_change() -> None:
    """Not by an earlier descriptor, nor by a later mapping of it."""
    made = FillableMemory(LARGE)
    handed = os.dup(made.fileno())
    os.pwrite(handed, b"state", 0)
    with made.seal() as memory:
        for change in (
            lambda: os.pwrite(handed, b"other", 0),
            lambda: os.ftruncate(handed, 0),
            lambda: mmap.mmap(handed, LARGE),
            lambda: os.posix_fallocate(handed, 0, 2 * LARGE),
        ):
            with pytest.raises(OSError, match="permitted"):
                change()
        assert b"state" == bytes(memory.map()[:5])
    os.close(handed)


def test_a_room_that_somebody_maps_to_write_is_refused() -> None:
    """And freed."""
    made = FillableMemory(LARGE)
    with mmap.mmap(made.fileno(), LARGE), pytest.raises(MalformedValueError, match="not sealed"):
        made.seal()
    made.close()
