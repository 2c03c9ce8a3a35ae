"""One request on its way to an answer: output once, answers whole, contents closed."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.descriptors import MEMORY, all_closed, opened
from tests.waiting import until

from cenote.runtime.remote.calls import HEARD_EVERY, Answer, PendingCall
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.frame_parser import ValueReply
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import announce, chunks, cut

LIMIT = 8 << 20


def call(**changed: Any) -> PendingCall:
    frame = runtime_pb2.ClientFrame(call=1, cell=runtime_pb2.Cell())
    return PendingCall(**{"frame": frame, "settle": lambda answer: None, "limit": LIMIT, **changed})


def printed(text: str, position: int) -> runtime_pb2.ServerFrame:
    output = runtime_pb2.CellOutput(text=text, position=position)
    return runtime_pb2.ServerFrame(call=1, output=output)


@given(st.text(max_size=40), st.data())
def test_output_is_heard_once(text: str, data: st.DataObject) -> None:
    """However it is split, and wherever it starts again after a break."""
    heard: list[str] = []
    asked = call(output=lambda stream, piece: heard.append(piece) or True)
    position = 0
    while position < len(text):
        start = data.draw(st.integers(0, position))
        end = data.draw(st.integers(position + 1, len(text)))
        asked.hear(printed(text[start:end], end))
        position = end
        assert position == asked.again(1).cell.heard
    assert text == "".join(heard)


def test_a_gap_in_the_output() -> None:
    """What the server no longer stores is missing; the rest arrives."""
    heard: list[str] = []
    asked = call(output=lambda stream, piece: heard.append(piece) or True)
    asked.hear(printed("abc", 3))
    asked.hear(printed("xyz", 1_003))
    assert (["abc", "xyz"], 1_003) == (heard, asked.position)


def test_the_server_is_told_how_far() -> None:
    """From time to time; not while the listener is behind, and at once when it has caught up."""
    asked = call(output=lambda stream, piece: len(piece) < 2 * HEARD_EVERY)
    asked.hear(printed("a", 1))
    assert asked.to_tell() is None
    asked.hear(printed("a" * HEARD_EVERY, HEARD_EVERY + 1))
    told = asked.to_tell()
    assert told is not None
    assert HEARD_EVERY + 1 == told.heard.position
    assert asked.to_tell() is None
    asked.hear(printed("a" * 2 * HEARD_EVERY, 3 * HEARD_EVERY + 1))
    assert asked.slow
    assert asked.to_tell() is None
    asked.slow = False
    assert asked.to_tell(now=True) is not None


def value_frames(data: bytes) -> list[runtime_pb2.ServerFrame]:
    """A value as a server sends it."""
    content = Content.pack([b"header", data])
    reply = jail_pb2.Reply()
    follows = announce(reply.value.content, content)
    frames = [runtime_pb2.ServerFrame(call=1, reply=reply)]
    pieces = list(chunks(content)) if follows else []
    frames += [
        runtime_pb2.ServerFrame(call=1, chunk=runtime_pb2.Chunk(data=piece, last=n == len(pieces)))
        for n, piece in enumerate(pieces, 1)
    ]
    content.close()
    return frames


@pytest.mark.parametrize("size", [10, 100_000, 3 << 20])
def test_values(size: int) -> None:
    """Inline or in chunks: the answer is complete with the last of it."""
    data, asked = os.urandom(size), call()
    answers = [asked.hear(frame) for frame in value_frames(data)]
    assert [None] * (len(answers) - 1) == answers[:-1]
    assert isinstance(answers[-1], ValueReply)
    assert data == bytes(answers[-1].content.unpack()[1])
    answers[-1].content.close()


def test_an_answer_begins_anew_on_a_new_line() -> None:
    """What arrived of it before is released."""
    before = len(opened(MEMORY))
    data, asked = os.urandom(3 << 20), call()
    frames = value_frames(data)
    for frame in frames[:-1]:
        asked.hear(frame)
    asked.again(1)
    answer: Answer | None = None
    for frame in frames:
        answer = asked.hear(frame)
    assert isinstance(answer, ValueReply)
    assert data == bytes(answer.content.unpack()[1])
    answer.content.close()
    until(lambda: len(opened(MEMORY)) <= before)


def test_an_answer_that_never_becomes_whole_is_let_go_of() -> None:
    """The end of a call closes what it sent and what had arrived."""
    settled: list[Answer] = []
    error = ProtocolViolation("enough")
    with all_closed(MEMORY):
        asked = call(settle=settled.append, content=Content.of_bytes(bytes(100_000)))
        asked.hear(value_frames(bytes(3 << 20))[0])
        asked.end(error)
    assert [error] == settled


def test_long_frames_come_in_parts() -> None:
    """They are joined before they are parsed."""
    result = runtime_pb2.CellResult(stdout="x" * (3 << 20), step=4)
    asked = call()
    answers = [asked.hear(part) for part in cut(runtime_pb2.ServerFrame(call=1, result=result))]
    assert len(answers) > 1
    assert [None] * (len(answers) - 1) == answers[:-1]
    assert isinstance(answers[-1], runtime_pb2.ServerFrame)
    assert result == answers[-1].result


@pytest.mark.parametrize(
    "frames",
    [
        [runtime_pb2.ServerFrame(call=1, chunk=runtime_pb2.Chunk(data=b"x", last=True))],
        [*value_frames(bytes(100_000)), value_frames(bytes(100_000))[1]],
        [value_frames(bytes(LIMIT))[0]],
        list(cut(runtime_pb2.ServerFrame(call=1, output=runtime_pb2.CellOutput(text="x" * LIMIT)))),
    ],
    ids=["a chunk of nothing", "too many chunks", "too large a value", "too long a frame"],
)
def test_what_no_server_says(frames: list[runtime_pb2.ServerFrame]) -> None:
    """It is refused, and bounded before it is stored."""
    asked = call()

    def hear_all() -> None:
        for frame in frames:
            answer = asked.hear(frame)
            if isinstance(answer, ValueReply):
                answer.content.close()

    with pytest.raises(ProtocolViolation):
        hear_all()
    asked.end(ProtocolViolation("over"))


def test_changes_have_keys() -> None:
    """Each has its own, unless it was given one; the same whenever it is sent."""
    first, second = call(changes=True), call(changes=True)
    assert first.frame.key != second.frame.key
    assert first.frame.key == first.again(1).key
    assert "" == call().frame.key
