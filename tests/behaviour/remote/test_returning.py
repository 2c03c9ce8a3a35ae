"""A platform that restarts: which calls wait for it, for how long, and what the user sees meanwhile."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from cenote.connection import connect
from cenote.runtime.remote import platform_client
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.platform_client import client_of
from cenote.runtime.remote.reconnection import (
    AT_FIRST,
    MOST_KNOWN,
    PATIENCE,
    SAID_AFTER,
    RetrySchedule,
    Returning,
    is_known,
    may_be_sent_again,
    remember,
)
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceServicer, add_PlatformServiceServicer_to_server
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home: only what a test records is known."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Gateway(PlatformServiceServicer):
    """Describes itself, and breaks the connection of a client that deletes.

    keys: of requests for runtimes, of which it answers the third. wait_for_room: seconds that it says.
    """

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.keys: list[str] = []
        self.wait_for_room = 0.0

    def Describe(self, _request: object, _context: object) -> platform_pb2.PlatformDescription:
        return platform_pb2.PlatformDescription(tenant="acme", wait_for_room=self.wait_for_room)

    def CreateRuntime(
        self, request: platform_pb2.CreateRuntimeRequest, context: grpc.ServicerContext
    ) -> platform_pb2.RuntimeDescription:
        self.keys.append(request.key)
        if len(self.keys) < 3:
            left = threading.Event()
            context.add_callback(left.set)
            left.wait()
        return platform_pb2.RuntimeDescription(id="made")

    def DeleteRuntime(self, request: platform_pb2.RuntimeName, context: grpc.ServicerContext) -> None:
        self.deleted.append(request.name)
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


class Return(logging.Handler):
    """Restarts a gateway once a client reports that it waits for it."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.gateway = Gateway()
        self.said: list[str] = []
        self._server: grpc.Server | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.come()

    def come(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_PlatformServiceServicer_to_server(self.gateway, self._server)
        assert self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self._server.start()

    def go(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()


@pytest.fixture
def back(free_port: int) -> Iterator[Return]:
    handler = Return(free_port)
    logging.getLogger("cenote.remote").addHandler(handler)
    yield handler
    logging.getLogger("cenote.remote").removeHandler(handler)
    handler.go()


@pytest.mark.slow
def test_a_client_waits_for_a_platform_that_was_there(free_port: int, back: Return) -> None:
    """It says so, once, and its call is answered as if nothing had happened."""
    address = f"127.0.0.1:{free_port}"
    remember(address)
    assert "acme" == connect(address, "t", wait=60).describe().tenant
    (said,) = back.said
    assert f"the platform at {address} does not answer (connection refused); waiting for it, " in said


@pytest.mark.slow
def test_many_calls_that_wait_say_it_once(free_port: int, back: Return) -> None:
    """All calls go to one platform."""
    platform = connect(f"127.0.0.1:{free_port}", "many", wait=60)
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(lambda _: platform.describe().tenant, range(5)))
    assert ["acme"] * 5 == found
    assert 1 == len(back.said)


def test_where_nothing_was_ever_there_nothing_is_waited_for(free_port: int, back: Return) -> None:
    """The error with the remedy is raised at once."""
    with pytest.raises(UnavailableError, match="start one with `cenote up`"):
        connect(f"127.0.0.1:{free_port}", "t").describe()
    assert [] == back.said


def test_one_that_does_not_come_back_is_given_up(free_port: int) -> None:
    """The error does not suggest to start one."""
    address = f"127.0.0.1:{free_port}"
    remember(address)
    with pytest.raises(UnavailableError, match="see there whether it runs") as failed:
        connect(address, "t", wait=0).describe()
    assert "cenote up" not in str(failed.value)


def test_what_was_started_here_is_known_from_then_on(free_port: int) -> None:
    """By any name of this machine; for other machines, a client cannot say that there was none."""
    assert not is_known(f"localhost:{free_port}")
    remember(f"127.0.0.1:{free_port}")
    assert is_known(f"localhost:{free_port}")
    assert is_known("platform.example:8470")


@pytest.mark.slow
def test_what_has_answered_this_process_is_waited_for(free_port: int, back: Return) -> None:
    """For example a platform in a container, whose port is on this machine. Nothing is written to disk."""
    back.come()
    platform = connect(f"127.0.0.1:{free_port}", "other")
    platform.describe()
    back.go()
    assert "acme" == platform.describe().tenant
    assert 1 == len(back.said)
    assert not is_known(platform.address)


@pytest.mark.slow
def test_who_says_how_long_is_waiting_for_whatever_comes(free_port: int, back: Return) -> None:
    """The argument, or the environment variable, applies to any platform."""
    assert "acme" == connect(f"127.0.0.1:{free_port}", "t", wait=60).describe().tenant
    assert 1 == len(back.said)


def test_what_may_have_been_done_is_not_asked_for_again(free_port: int, back: Return) -> None:
    """A connection that broke during a deletion: the deletion may have been carried out."""
    back.come()
    with pytest.raises(UnavailableError):
        connect(f"127.0.0.1:{free_port}", "t", wait=60).delete("etl")
    assert ["etl"] == back.gateway.deleted


def _made(port: int) -> str:
    client = client_of(Destination(f"127.0.0.1:{port}", "t"))
    creation = client.runtime("", SandboxPolicy(), attach=False, key="k")
    return asyncio.run_coroutine_threadsafe(creation, background().loop).result(60).id


def test_a_runtime_waits_for_room_as_long_as_its_platform_says(
    free_port: int, back: Return, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the same one again, since each call has the time that other answers take."""
    monkeypatch.setattr(platform_client, "DEADLINE", 1.0)
    back.gateway.wait_for_room = 60.0
    back.come()
    assert "made" == _made(free_port)
    assert ["k"] * 3 == back.gateway.keys


def test_a_platform_that_has_nothing_wait_must_answer_in_time(
    free_port: int, back: Return, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for any other question."""
    monkeypatch.setattr(platform_client, "DEADLINE", 1.0)
    back.come()
    with pytest.raises(UnavailableError, match=r"no answer from .* in time"):
        _made(free_port)
    assert ["k"] == back.gateway.keys


@pytest.mark.parametrize(
    ("method", "key", "details", "again"),
    [
        ("/s/DeleteRuntime", "", "failed to connect to all addresses; Connection refused", True),
        ("/s/DeleteRuntime", "", "DNS resolution failed for x", True),
        ("/s/DeleteRuntime", "", "failed to connect: CERTIFICATE_VERIFY_FAILED", False),
        ("/s/DeleteRuntime", "", "Socket closed", False),
        ("/s/GetRuntime", "", "Socket closed", True),
        ("/s/CreateRuntime", "", "Socket closed", False),
        ("/s/CreateRuntime", "k", "Socket closed", True),
    ],
)
def test_what_is_asked_again(method: str, key: str, details: str, again: bool) -> None:
    """A call that no server received, that changes nothing, or that has a key."""
    request = platform_pb2.CreateRuntimeRequest(key=key)
    assert again == may_be_sent_again(method, request, details)


def test_only_the_latest_are_remembered() -> None:
    """In a file of bounded size."""
    for number in range(MOST_KNOWN + 1):
        remember(f"127.0.0.1:{number + 1}")
    assert not is_known("127.0.0.1:1")
    assert is_known("127.0.0.1:2")
    assert is_known(f"127.0.0.1:{MOST_KNOWN + 1}")


def test_a_wait_is_said_once_and_ends() -> None:
    """Not for a platform that comes back at once; with growing pauses, never beyond the end."""
    now, said = [0.0], list[str]()
    returning = Returning("it", 3.0, said.append, clock=lambda: now[0])
    while (pause := returning.pause("gone")) is not None:
        assert bool(said) == (now[0] >= SAID_AFTER)
        now[0] += pause
    assert 3.0 == pytest.approx(now[0])
    assert 1 == len(said)
    assert said[0].startswith("it does not answer (gone); waiting for it, ")
    assert Returning("it", 0.0, said.append).pause("gone") is None


def test_a_line_that_is_broken_for_longer_is_worth_a_word() -> None:
    """Once for each break."""
    patience = RetrySchedule(60.0)
    patience.stands(0)
    for broke in (10.0, 100.0):
        patience.broke(broke)
        assert patience.worth_a_word(broke + SAID_AFTER - 0.1) is None
        assert 60.0 - SAID_AFTER == patience.worth_a_word(broke + SAID_AFTER)
        assert patience.worth_a_word(broke + SAID_AFTER + 1) is None
        patience.stands(broke + 5)
    assert patience.broke(105 + 60) is not None


def test_a_line_is_waited_for_as_long_as_a_move_takes() -> None:
    """Whatever the wait: moving a runtime breaks its connections."""
    patience = RetrySchedule(0.0)
    assert patience.broke(0) is not None
    assert patience.broke(AT_FIRST) is None
    patience.stands(0)
    assert patience.broke(1) is not None
    assert patience.broke(PATIENCE) is not None


@pytest.mark.parametrize("wrong", ["soon", "-1", "inf", "nan"])
def test_a_wait_that_is_none_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error shows a valid value."""
    monkeypatch.setenv("CENOTE_WAIT", wrong)
    with pytest.raises(UsageError, match="CENOTE_WAIT is a number of seconds"):
        connect("127.0.0.1:1", "t")
    with pytest.raises(UsageError, match="wait is a number of seconds"):
        connect("127.0.0.1:1", "t", wait=-1)
