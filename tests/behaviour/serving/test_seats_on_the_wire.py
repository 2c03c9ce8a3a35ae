"""Authors of one runtime, through any client."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line

from cenote_proto.v1 import failure_pb2, runtime_pb2
from cenote_worker.history.events import MAX_AUTHOR


def test_a_client_is_an_author(world: World) -> None:
    """Result and status name the cell's author; each author's names are private."""
    name = world.runtime()
    owner, ana = world.line(name), world.line(name, "two", author="ana", private=True)
    assert ("", "ana") == (owner.run("x = [1]").author, ana.run("x = [2]\nshared.x = [3]").author)
    result = owner.run("x")
    assert ("[3]", ["x"]) == (result.value, [notice.name for notice in result.notices])
    call = ana.cell("print('here')\nimport time\ntime.sleep(600)")
    ana.until(lambda frame: frame.HasField("output"))
    status = owner.answer(owner.send(status=runtime_pb2.StatusQuestion())).status
    assert (4, "ana") == (status.step, status.author)
    owner.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    ana.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert "interrupt" == ana.answer(call).result.error.reason


def test_an_author_does_not_reset(world: World) -> None:
    """Other authors use the runtime too."""
    line = world.line(world.runtime(), author="ana")
    refused = line.answer(line.send(reset=runtime_pb2.Reset())).failure
    assert failure_pb2.Failure.USAGE == refused.kind
    assert "owner" in refused.message


def test_who_comes_back_is_who_they_were(world: World) -> None:
    """A known client that sends a new name does not become another author."""
    name = world.runtime()
    world.line(name, author="ana").cut()
    assert "ana" == world.line(name, author="ben").run("1").author


@pytest.mark.parametrize(
    "hello",
    [
        {"author": "a\nb"},
        {"author": " "},
        {"author": "x" * (MAX_AUTHOR + 1)},
        {"private": True},
    ],
    ids=["two lines", "nothing to see", "endless", "nobody's own names"],
)
def test_names_that_are_refused(world: World, hello: dict[str, Any]) -> None:
    """Before the client is admitted."""
    line = Line(world.address, world.runtime(), **hello)
    assert grpc.StatusCode.INVALID_ARGUMENT == line.ended().code
    line.cut()


def test_a_longest_name(world: World) -> None:
    """At the limit it is accepted, and returned whole."""
    longest = "é" * MAX_AUTHOR
    assert longest == world.line(world.runtime(), author=longest).run("1").author
