"""The server itself: its addresses, its runtimes, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.descriptors import opened
from tests.support.serving.fixtures import World, authorise
from tests.support.serving.plain import Line
from tests.waiting import until

from cenote_proto.v1 import failure_pb2
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving.references import LocalReferences
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.server import RuntimeServer


def server(**arguments: object) -> RuntimeServer:
    return RuntimeServer(authorise, LocalReferences(room=1 << 20), **arguments)  # type: ignore[arg-type]


def test_a_unix_socket(tmp_path: Path) -> None:
    """On one machine no port is needed."""
    made = server(listen=f"unix:{tmp_path}/socket")
    assert f"unix:{tmp_path}/socket" == made.start().clients
    hosted = HostedRuntime(SandboxPolicy(), relay := HostRelay(), name="us-1")
    made.add("us-1", hosted, relay)
    line = Line(f"unix:{tmp_path}/socket", "us-1")
    line.welcome()
    assert "2" == line.run("1 + 1").value
    line.cut()
    made.close()
    hosted.close()


def test_a_port_in_use(world: World) -> None:
    """The error contains the address."""
    with pytest.raises(UnavailableError, match=world.address):
        server(listen=world.address).start()


def test_an_id_is_served_once(world: World) -> None:
    """A second runtime with the same id would take the first one's clients."""
    name = world.runtime()
    with pytest.raises(NameExistsError):
        world.server.add(name, world.hosted[name], HostRelay())


def test_clients_are_counted(world: World) -> None:
    """A host ends a runtime that has had no client for some time."""
    name = world.runtime()
    assert 0 == world.server.attached(name)
    assert 0 < world.server.idle(name)
    world.line(name, "one")
    world.line(name, "two")
    assert 2 == world.server.attached(name)
    with pytest.raises(UnknownRuntimeError):
        world.server.attached("us-0")


def test_the_end_of_a_server(make_world: Callable[..., World]) -> None:
    """Clients are told to look elsewhere, runtimes stay; closing twice is allowed."""
    world = make_world()
    line = world.line(world.runtime())
    line.run("x = 1")
    world.server.close()
    world.server.close()
    failure = line.until(lambda frame: frame.HasField("failure")).failure
    assert failure_pb2.Failure.UNAVAILABLE == failure.kind
    assert all(hosted.running for hosted in world.hosted.values())


@pytest.mark.slow
def test_a_server_leaves_nothing_behind() -> None:
    """Neither threads nor descriptors, however often."""

    def use() -> None:
        made = server()
        made.start()
        made.close()

    others = set(threading.enumerate())
    use()
    before = settled(others)
    for _ in range(4):
        use()
    until(lambda: settled(others) <= before)


def settled(others: set[threading.Thread]) -> int:
    """Descriptors of this process, once only threads of other tests' servers are left."""
    until(lambda: not any(t.name.startswith("cenote-serv") for t in {*threading.enumerate()} - others))
    return len(opened())


def test_a_runtime_is_removed_when_it_has_had_no_client_for_long_enough(world: World) -> None:
    """Not while it has one, and not right after."""
    name = world.runtime()
    line = world.line(name)
    assert not world.server.remove_idle(name, 0.0)
    line.finish()
    while world.server.attached(name):
        time.sleep(0.01)
    assert not world.server.remove_idle(name, 60.0)
    while not world.server.remove_idle(name, 0.05):
        time.sleep(0.01)
    with pytest.raises(UnknownRuntimeError):
        world.server.idle(name)
