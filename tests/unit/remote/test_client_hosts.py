"""Calls of a remote jail to functions of this client: each carried out once, and answered whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.waiting import PATIENCE, until

from cenote.runtime.inject.host_function_server import HostFunctionServer
from cenote.runtime.inject.references import ObjectReference, Sealed
from cenote.runtime.remote.background import background
from cenote.runtime.remote.host_calls import FIRST, RemoteCalls
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import UnknownReferenceError
from cenote_security.values.encoder import encode
from cenote_worker.transport.content import Content, Holding
from cenote_worker.wire.chunking import announce, chunks

PLACE = "platform:1"
LIMIT = 8 << 20


class FakeLine:
    """A connection that records what is sent on it."""

    def __init__(self) -> None:
        self.said: list[tuple[runtime_pb2.ClientFrame, Content | None]] = []

    def say(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None:
        self.said.append((frame, content))

    def errors(self) -> list[str]:
        return [frame.host_answer.error.message for frame, _ in self.said]


async def _unknown(reference: str) -> Holding:
    raise UnknownReferenceError(reference)


class Client:
    """RemoteCalls on its loop, and functions to call."""

    def __init__(self, **targets: Callable[..., object]) -> None:
        self.line = FakeLine()
        self.desk = HostFunctionServer({(name, ""): target for name, target in targets.items()}, {})
        self.calls = background().wait(self._made(), PATIENCE, "be made")

    async def _made(self) -> RemoteCalls:
        return RemoteCalls(self.desk, self.line, _unknown, place=PLACE, limit=LIMIT)

    def hear(self, *frames: runtime_pb2.ServerFrame) -> None:
        self._on_loop(lambda: [self.calls.hear(frame) for frame in frames])

    def returned(self) -> None:
        self._on_loop(self.calls.returned)

    def close(self) -> None:
        self._on_loop(self.calls.ended)
        self.desk.close()

    def _on_loop(self, work: Callable[[], object]) -> None:
        async def carried_out() -> None:
            work()

        background().wait(carried_out(), PATIENCE, "hear")


@pytest.fixture
def make_client() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(**targets: Callable[..., object]) -> Client:
        made.append(Client(**targets))
        return made[-1]

    yield make
    for client in made:
        client.close()


def asking(target: str, *args: object, number: int = FIRST, **more: Any) -> list[runtime_pb2.ServerFrame]:
    """A call as a server sends it."""
    encoded = encode([list(args), {}])
    content = Content.pack([encoded.header, encoded.pieces])
    frame = runtime_pb2.ServerFrame(call=number)
    frame.host_call.target = target
    follows = announce(frame.host_call.arguments, content)
    if more:
        frame.host_call.value.CopyFrom(runtime_pb2.Shared(**more))
    pieces = list(chunks(content)) if follows else []
    content.close()
    return [
        frame,
        *(
            runtime_pb2.ServerFrame(call=number, chunk=runtime_pb2.Chunk(data=piece, last=n == len(pieces)))
            for n, piece in enumerate(pieces, 1)
        ),
    ]


def acknowledged(number: int = FIRST) -> runtime_pb2.ServerFrame:
    return runtime_pb2.ServerFrame(call=number, host_answered=runtime_pb2.HostAnswered())


def test_an_answer_is_repeated_until_it_has_arrived(make_client: Callable[..., Client]) -> None:
    """The call itself runs once, however often it arrives."""
    calls: list[int] = []
    client = make_client(note=calls.append)
    client.hear(*asking("note", 1))
    until(lambda: len(client.line.said) == 1)
    client.hear(*asking("note", 1))
    client.returned()
    client.returned()
    assert 3 == len(client.line.said)
    client.hear(acknowledged())
    client.returned()
    assert (3, [1]) == (len(client.line.said), calls)


def test_large_arguments_begin_anew_on_a_new_line(make_client: Callable[..., Client]) -> None:
    """What had arrived before the break is released."""
    sizes: list[int] = []
    client = make_client(take=lambda data: sizes.append(len(data)))
    frames = asking("take", bytes(3 << 20))
    client.hear(*frames[:-1])
    client.returned()
    client.hear(*frames)
    until(lambda: sizes == [3 << 20])


def test_a_call_that_is_cancelled_while_it_arrives(make_client: Callable[..., Client]) -> None:
    """Chunks that still arrive belong to no call, and do no harm."""
    called = threading.Event()
    client = make_client(take=lambda data: called.set(), other=lambda: 1)
    frames = asking("take", bytes(3 << 20))
    cancel = runtime_pb2.ServerFrame(call=FIRST, host_cancel=jail_pb2.HostCancel())
    client.hear(*frames[:2], cancel, *frames[2:])
    client.hear(*asking("other", number=FIRST + 1))
    until(lambda: len(client.line.said) == 1)
    assert FIRST + 1 == client.line.said[0][0].call
    assert not called.is_set()


def test_the_answer_of_a_cancelled_call_is_dropped(make_client: Callable[..., Client]) -> None:
    """A function that runs to its end answers no call."""
    started, finish, finished = threading.Event(), threading.Event(), threading.Event()

    def slow() -> bytes:
        started.set()
        finish.wait(PATIENCE)
        finished.set()
        return bytes(1 << 20)

    client = make_client(slow=slow)
    client.hear(*asking("slow"))
    assert started.wait(PATIENCE)
    client.hear(runtime_pb2.ServerFrame(call=FIRST, host_cancel=jail_pb2.HostCancel()))
    finish.set()
    assert finished.wait(PATIENCE)
    client.returned()
    assert [] == client.line.said


def test_arguments_that_cannot_be_taken(make_client: Callable[..., Client]) -> None:
    """The jail gets an error; it does not wait for ever."""
    client = make_client(take=len)
    client.hear(asking("take", bytes(2 * LIMIT))[0])
    frames = asking("take", bytes(1 << 20), number=FIRST + 1)
    too_much = runtime_pb2.ServerFrame(call=FIRST + 1, chunk=runtime_pb2.Chunk(data=bytes(2 << 20)))
    client.hear(frames[0], too_much)
    assert ["over the limit", "more chunks"] == [
        next(words for words in ("over the limit", "more chunks") if words in error)
        for error in client.line.errors()
    ]


def test_a_value_that_is_gone(make_client: Callable[..., Client]) -> None:
    """A call with a value that no longer exists fails, and says why."""
    client = make_client(take=lambda value: None)
    client.hear(*asking("take", reference="ref_gone"))
    until(lambda: bool(client.line.said))
    assert "ref_gone" in client.line.errors()[0]


def test_what_nobody_offers(make_client: Callable[..., Client]) -> None:
    """It is refused at once; so is everything when the client is closed."""
    client = make_client(known=lambda: 1)
    client.hear(*asking("unknown"))
    until(lambda: len(client.line.said) == 1)
    assert ["the client offers no unknown"] == client.line.errors()


def test_values_of_this_process(make_client: Callable[..., Client]) -> None:
    """A sealed one is passed on unchanged; one that the jail gets as a handle is sent, and the platform stores it."""
    sealed = ObjectReference.of_sealed(Content.pack([b"x" * 100_000]), None)
    client = make_client(sealed=lambda: Sealed(sealed), handle=lambda: sealed)
    client.hear(*asking("sealed"))
    until(lambda: len(client.line.said) == 1)
    frame, content = client.line.said[0]
    assert content is not None
    assert content.size == frame.host_answer.value.size > 100_000
    client.hear(*asking("handle", number=FIRST + 1))
    until(lambda: len(client.line.said) == 2)
    frame, uploaded = client.line.said[1]
    assert uploaded is not None
    assert content.size == uploaded.size == frame.host_answer.upload.content.size
    assert "object" == frame.host_answer.upload.info.type
    sealed.release()
