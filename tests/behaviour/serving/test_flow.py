"""Clients that flood, stall, send garbage or never read: each harms its own session at the most."""

from __future__ import annotations

import pickle
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from tests.behaviour.serving.test_tour import values
from tests.support.descriptors import opened
from tests.support.serving.fixtures import PLAIN, World
from tests.support.serving.plain import CHUNK, Line, plain
from tests.waiting import PATIENCE, until

from cenote_proto.v1 import failure_pb2, jail_pb2, runtime_pb2
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving import limits
from cenote_worker.serving.references import UNCLAIMED
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.server import THREADS
from cenote_worker.supervisor.start import start_jail
from cenote_worker.supervisor.supervisor import Supervisor

ATTACH = "/cenote_proto.v1.RuntimeService/Attach"


def memory() -> int:
    """Private memory of this process, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class Peak:
    """The peak of this process's private memory while the block runs, above the starting value."""

    def __enter__(self) -> Peak:
        self._before, self.growth, self._over = memory(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.growth = max(self.growth, memory() - self._before)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def raw(world: World, messages: Iterator[bytes], token: str = "good") -> grpc.StatusCode:
    """The stream's final error when it gets these bytes as its messages."""
    stream = grpc.insecure_channel(world.address).stream_stream(ATTACH)(
        messages, metadata=(("authorization", f"Bearer {token}"),), timeout=PATIENCE
    )
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    return caught.value.code()


def frame(**body: object) -> bytes:
    return runtime_pb2.ClientFrame(**body).SerializeToString()


def hello(runtime: str) -> bytes:
    greeting = runtime_pb2.Hello(oldest_version=1, newest_version=1, runtime=runtime, client="raw")
    return frame(hello=greeting)


CELL = runtime_pb2.Cell(code=plain(b"1"))


@pytest.mark.parametrize(
    "messages",
    [
        [b"\xff\xff\xff"],
        [frame(call=1, cell=CELL)],
        ["hello", b"\xff\xff\xff"],
        ["hello", "hello"],
        ["hello", b""],
        ["hello", frame(call=0, cell=CELL)],
        ["hello", frame(call=1 << 63, cell=CELL)],
        ["hello", frame(call=1, cell=runtime_pb2.Cell(code=jail_pb2.Payload(size=9, inline=b"1")))],
        [
            "hello",
            frame(call=1, cell=runtime_pb2.Cell(code=jail_pb2.Payload(size=9, attached=True))),
            frame(call=1, chunk=runtime_pb2.Chunk(data=b"1" * 10)),
        ],
        [
            "hello",
            frame(call=1, cell=runtime_pb2.Cell(code=jail_pb2.Payload(size=9, attached=True))),
            frame(call=1, chunk=runtime_pb2.Chunk(data=b"1", last=True)),
        ],
    ],
    ids=[
        "garbage",
        "no hello",
        "garbage after hello",
        "hello twice",
        "nothing",
        "call 0",
        "call too large",
        "size that lies",
        "too many bytes",
        "too few bytes",
    ],
)
def test_what_breaks_the_protocol_ends_the_stream(world: World, messages: list[bytes | str]) -> None:
    """Nothing else ends: other clients of the runtime continue."""
    name = world.runtime()
    other = world.line(name, "two")
    sent = [hello(name) if message == "hello" else message for message in messages]
    assert grpc.StatusCode.ABORTED == raw(world, iter(sent))  # type: ignore[arg-type]
    assert "2" == other.run("1 + 1").value


def test_a_message_over_the_limit(world: World) -> None:
    """gRPC itself refuses it, before it is in memory."""
    name = world.runtime()
    big = frame(call=1, cell=runtime_pb2.Cell(code=plain(bytes(5 << 20))))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == raw(world, iter([hello(name), big]))


def test_a_client_that_says_nothing(make_world: Callable[..., World]) -> None:
    """It has some time to introduce itself."""
    silent: SimpleQueue[None] = SimpleQueue()
    assert grpc.StatusCode.ABORTED == raw(make_world(handshake=0.2), iter(silent.get, None))
    silent.put(None)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "body",
    [
        {"cell": runtime_pb2.Cell(code=plain(b"\xff"))},
        {"cell": runtime_pb2.Cell(code=plain(b"1"), timeout=-1)},
        {"cell": runtime_pb2.Cell(code=plain(b"1"), timeout=float("nan"))},
        {"cell": runtime_pb2.Cell(code=jail_pb2.Payload(size=limits.MAX_CODE + 1, attached=True))},
        {"fetch": jail_pb2.Fetch(name="x" * (limits.MAX_NAME + 1))},
        {"fetch": jail_pb2.Fetch()},
        {"key": "k" * 201, "cell": CELL},
        {"injection": runtime_pb2.Injection(reference="r")},
        {"injection": runtime_pb2.Injection(values=values(), names=["x"] * limits.MAX_NAMES)},
        {"file": jail_pb2.FileRequest(path=b"../x")},
        {"file": jail_pb2.FileRequest(path=b"/etc/passwd", operation=jail_pb2.FileRequest.READ)},
        {"file": jail_pb2.FileRequest(operation=9)},  # type: ignore[arg-type]
        {"file": jail_pb2.FileRequest(limit=10_001)},
    ],
)
def test_what_is_wrong_with_a_call_fails_that_call(world: World, body: dict[str, object]) -> None:
    """Nothing ran, and the stream continues."""
    line = world.line(world.runtime())
    assert failure_pb2.Failure.USAGE == line.answer(line.send(**body)).failure.kind  # type: ignore[arg-type]
    assert "2" == line.run("1 + 1").value


def test_chunks_of_a_refused_call_are_dropped(world: World) -> None:
    """A client sends them after the frame, before it receives the refusal."""
    line = world.line(world.runtime(disk="1MiB", memory="512MiB"))
    payload = jail_pb2.Payload(size=2 << 20, attached=True)
    call = line.send(
        file=jail_pb2.FileRequest(operation=jail_pb2.FileRequest.WRITE, path=b"f", content=payload)
    )
    line.chunks(call, bytes(2 << 20))
    assert failure_pb2.Failure.USAGE == line.answer(call).failure.kind
    assert "2" == line.run("1 + 1").value


def test_content_that_is_announced_and_never_sent(world: World) -> None:
    """It costs nothing, and at most one value's worth may be in transit."""
    line = world.line(world.runtime(memory="512MiB"))
    with Peak() as peak:
        payload = jail_pb2.Payload(size=1 << 30, attached=True)
        injection = runtime_pb2.Injection(values=payload)
        line.send(injection=injection)
        second = line.answer(line.send(injection=injection)).failure
    assert failure_pb2.Failure.UNAVAILABLE == second.kind
    assert peak.growth < 32 << 20
    assert "2" == line.run("1 + 1").value


@pytest.mark.slow
def test_a_client_that_sends_more_calls_than_it_may(world: World) -> None:
    """Those over the limit are refused, each by itself; the others are carried out."""
    line = world.line(world.runtime(snapshots="none"))
    first = line.cell("import time; print('on'); time.sleep(600)")
    line.until(lambda frame: frame.HasField("output"))
    calls = [line.cell("'ran'") for _ in range(limits.MAX_CALLS + 20)]
    line.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    refused = [call for call in calls if line.answer(call).HasField("failure")]
    assert calls[-21:] == refused
    assert "interrupt" == line.answer(first).result.error.reason


def test_a_client_that_does_not_say_that_it_heard(world: World) -> None:
    """Its cell has to wait, and continues after the acknowledgement; nothing is lost."""
    line = world.line(world.runtime())
    call = line.cell("for _ in range(64):\n    print('x' * 65_535)\n'printed'")
    taken, position = 0, 0
    while taken < limits.WINDOW:
        output = line.until(lambda frame: frame.HasField("output")).output
        taken, position = taken + len(output.text), output.position
    status = line.answer(line.send(status=runtime_pb2.StatusQuestion())).status
    assert 1 == status.step
    time.sleep(0.2)  # no event to wait for: the point is that none comes
    assert sum(len(one.text) for one in line.output(call)) <= 256 << 10
    while position < 64 * 65_536:
        line.hear(call, position)
        position = line.until(lambda frame: frame.HasField("output")).output.position
    assert "'printed'" == line.answer(call).result.value


def test_a_broken_line_frees_a_cell_that_was_made_to_wait(world: World) -> None:
    """No acknowledgement would ever come."""
    name = world.runtime()
    line = world.line(name)
    call = line.cell("for _ in range(64):\n    print('x' * 65_535)\n'printed'", key="k")
    line.until(lambda frame: frame.HasField("output"))
    line.cut()
    other = world.line(name, "two")
    assert "2" == other.run("1 + 1").value
    assert call == 1


def test_a_client_that_never_reads(world: World) -> None:
    """Its answers wait in bounded memory; another client of the runtime is served meanwhile."""
    name = world.runtime(output="1MiB")
    line, other = world.line(name), world.line(name, "two")
    line.pause()
    line.cell("1")
    with Peak() as peak:
        for _ in range(300):
            line.cell("import sys\nsys.stdout.write('x' * 500_000); sys.stderr.write('y' * 400_000)\n1")
        for _ in range(5):
            assert "2" == other.run("1 + 1").value
    assert peak.growth < 150 << 20
    line.go_on()


@pytest.mark.slow
def test_many_clients(world: World) -> None:
    """64 at once, on four runtimes; each gets its own answers."""
    names = [world.runtime() for _ in range(4)]
    lines = [world.line(names[number % 4], f"client {number}") for number in range(64)]
    calls = [[line.cell(f"{number} * 10 + {turn}") for turn in range(5)] for number, line in enumerate(lines)]
    for number, line in enumerate(lines):
        answers = [line.answer(call).result.value for call in calls[number]]
        assert [str(number * 10 + turn) for turn in range(5)] == answers


@pytest.mark.slow
def test_a_large_value(world: World) -> None:
    """100 MB in and out in chunks: the server's memory grows by a few of them, never by the value."""
    line = world.line(world.runtime(memory="1GiB"), room=4)
    size = 100 << 20
    with Peak() as peak:
        inject(line, size)
        assert str(size) == line.run("y = bytes(x)\nlen(y)").value
        call = line.send(fetch=jail_pb2.Fetch(name="y"))
        announced = line.answer(call).reply.value.content.size
        chunks = (frame.chunk for frame in line.frames() if frame.call == call)
        received = 0
        while not (chunk := next(chunks)).last:
            received += len(chunk.data)
    assert announced == received + len(chunk.data) > size
    assert peak.growth < 90 << 20


def inject(line: Line, size: int) -> None:
    """`x` is a view of this many zeros, which the pickle holds out of band."""
    pickled = pickle.dumps(
        ({"x": pickle.PickleBuffer(bytearray(8))}, {}), protocol=5, buffer_callback=lambda _buffer: False
    )
    head = struct.pack("<2Q", len(pickled), size)
    head += bytes(-len(head) % 64) + pickled
    head += bytes(-len(head) % 64)
    payload = jail_pb2.Payload(size=len(head) + size, attached=True, count=2)
    call = line.send(injection=runtime_pb2.Injection(values=payload, names=["x"]))
    line.put(runtime_pb2.ClientFrame(call=call, chunk=runtime_pb2.Chunk(data=head)))
    for start in range(0, size, CHUNK):
        chunk = runtime_pb2.Chunk(data=bytes(CHUNK), last=start + CHUNK == size)
        line.put(runtime_pb2.ClientFrame(call=call, chunk=chunk))
    assert line.answer(call).reply.HasField("done")


def test_a_jail_that_starts_for_ever(world: World) -> None:
    """However many calls wait for it, other clients of the same server can connect and run their cells."""
    held, relay = threading.Event(), HostRelay()

    def start(*settings: Any) -> Supervisor:
        held.wait()
        return start_jail(*settings)

    world.hosted["them"] = HostedRuntime(SandboxPolicy(**PLAIN), relay, start, "them")
    world.server.add("them", world.hosted["them"], relay)
    slow = world.line("them", token="other")
    calls = [slow.send(status=runtime_pb2.StatusQuestion()) for _ in range(2 * THREADS)]
    assert "2" == world.line(world.runtime()).run("1 + 1").value
    held.set()
    assert all(slow.answer(call).HasField("status") for call in calls)


def test_a_result_of_many_megabytes(world: World) -> None:
    """It is sent in parts, and delays no other frame for long."""
    line = world.line(world.runtime())
    call = line.cell("print('x' * 5_000_000)\n'done'")
    position = 0
    while position < 5_000_001:
        position = line.until(lambda frame: frame.HasField("output")).output.position
        line.hear(call, position)
    result = line.answer(call).result
    assert (5_000_001, "'done'") == (len(result.stdout), result.value)


def test_nothing_is_left_open(make_world: Callable[..., World]) -> None:
    """Sessions that end in every way leave no descriptor open."""
    world = make_world(grace=0.05)
    name = world.runtime()

    def use(client: str) -> None:
        line = world.line(name, client)
        line.run("x = bytes(100_000)")
        line.answer(line.send(fetch=jail_pb2.Fetch(name="x")))
        line.answer(line.send(share=runtime_pb2.Share(name="x")))
        payload = jail_pb2.Payload(size=1 << 20, attached=True)
        call = line.send(injection=runtime_pb2.Injection(values=payload))
        line.put(runtime_pb2.ClientFrame(call=call, chunk=runtime_pb2.Chunk(data=b"half")))
        line.answer(line.send(describe=jail_pb2.Describe()))
        line.cut()
        line.ended()

    def settled() -> int:
        until(lambda: not world.server.attached(name))
        for record in world.references.list("us", after="", limit=1000):
            world.references.release(record.id, "us", holder=UNCLAIMED)
        return len(opened())

    use("client 1")
    before = settled()
    for number in range(2, 8):
        use(f"client {number}")
    until(lambda: settled() <= before + 1)
