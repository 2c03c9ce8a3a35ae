"""Programs that are tried in a scratch runtime, through any client."""

from __future__ import annotations

import pytest
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line, plain, unpacked

from cenote_proto.v1 import failure_pb2, runtime_pb2
from cenote_security.errors import UsageError
from cenote_security.values.decoder import load
from cenote_worker.serving.calls.call_parser import check

ENDLESS = "import time\nwhile True: time.sleep(0.01)"


def rehearse(line: Line, source: str, name: str = "x", key: str = "", *, seconds: float = 60) -> int:
    body = runtime_pb2.Rehearse(source=plain(source.encode()), name=name, seconds=seconds)
    return line.send(key, rehearse=body)


def value(line: Line, call: int) -> object:
    content = line.answer(call).reply.value.content
    header, data = unpacked(content, content.inline)
    return load(header, memoryview(data), classes={})


def failure(line: Line, call: int) -> int:
    return line.answer(call).failure.kind


def test_a_program_is_tried_beside_the_runtime(world: World) -> None:
    """The runtime is not changed; the answer says what prevented the value."""
    line = world.line(world.runtime())
    assert line.run("x = 1").success
    assert 42 == value(line, rehearse(line, "x = 42"))
    assert failure_pb2.Failure.REHEARSAL == failure(line, rehearse(line, "y = x"))
    assert failure_pb2.Failure.REHEARSAL == failure(line, rehearse(line, "y = 42"))
    result = line.run("x")
    assert ("1", 2) == (result.value, result.step)


def test_one_at_a_time(world: World) -> None:
    """A second one is refused at once; the same key replaces the former one; a withdrawn one ends."""
    line = world.line(world.runtime())
    first = rehearse(line, ENDLESS, key="mine")
    assert failure_pb2.Failure.UNAVAILABLE == failure(line, rehearse(line, "x = 1", key="other"))
    assert 2 == value(line, rehearse(line, "x = 2", key="mine"))
    assert line.answer(first).HasField("failure")
    given_up = rehearse(line, ENDLESS)
    line.put(runtime_pb2.ClientFrame(call=given_up, withdraw=runtime_pb2.Withdraw()))
    assert 3 == value(line, rehearse(line, "x = 3"))


def test_an_interrupt_is_for_the_runtimes_own_cells(world: World) -> None:
    """The program continues, up to its timeout."""
    line = world.line(world.runtime())
    call = rehearse(line, ENDLESS, seconds=0.5)
    line.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert "time" in line.answer(call).failure.message.lower()


def test_it_is_for_the_owner(world: World) -> None:
    """Neither an attached author nor a read-only client may; those may query what was put in."""
    name = world.runtime()
    author, reader = world.line(name, author="ana"), world.line(name, "two", token="reader")
    assert failure_pb2.Failure.USAGE == failure(author, rehearse(author, "x = 1"))
    assert failure_pb2.Failure.REJECTED == failure(reader, rehearse(reader, "x = 1"))
    asked = reader.send(put_in=runtime_pb2.PutInQuestion())
    assert "put_in" == reader.answer(asked).WhichOneof("body")


@pytest.mark.parametrize(
    "body",
    [
        {"rehearse": runtime_pb2.Rehearse(name="x", seconds=0)},
        {"rehearse": runtime_pb2.Rehearse(name="x", seconds=float("inf"))},
        {"rehearse": runtime_pb2.Rehearse(name="", seconds=1)},
        {"rehearse": runtime_pb2.Rehearse(name="x", seconds=1, steps=[7])},
        {"rehearse": runtime_pb2.Rehearse(name="x", seconds=1, steps=[0])},
        {"build": runtime_pb2.Build(test_seconds=-1)},
        {"build": runtime_pb2.Build(test_seconds=float("nan"))},
        {"declare": runtime_pb2.Declare(units=[runtime_pb2.Unit(name="x" * 1_001)])},
        {"declare": runtime_pb2.Declare(units=[runtime_pb2.Unit(name="x")] * 201)},
        {"declare": runtime_pb2.Declare(units=[runtime_pb2.Unit(name="x", depends_on=["y"] * 201)])},
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_is_too_much_is_refused(world: World, body: dict[str, object]) -> None:
    """The call is refused, and the connection stays."""
    line = world.line(world.runtime())
    assert failure_pb2.Failure.USAGE == failure(line, line.send(**body))
    most = runtime_pb2.Unit(name="x" * 1_000, depends_on=["y"] * 200)
    call = line.send(declare=runtime_pb2.Declare(units=[most] * 200))
    assert (
        "not applied here" in line.answer(call).failure.message
    )  # which is queried once nothing is too large


def test_a_step_is_named_once() -> None:
    """One number of two bytes may stand for a thousand recorded calls: four megabytes of them would be a billion."""
    check(_rehearsal(1, 2), "rehearse")
    with pytest.raises(UsageError, match="once"):
        check(_rehearsal(1, 2, 1), "rehearse")


def _rehearsal(*steps: int) -> runtime_pb2.ClientFrame:
    return runtime_pb2.ClientFrame(rehearse=runtime_pb2.Rehearse(name="x", seconds=1, steps=steps))
