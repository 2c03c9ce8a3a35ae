"""A gRPC server on its own thread: its description, its address, its end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import BinaryIO

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.waiting import PATIENCE

from cenote_security.errors import UnavailableError
from cenote_worker.serving.auth_interceptor import Metadata
from cenote_worker.serving.grpc_server import HANDSHAKE, ServerThread

SETTINGS, PING, ACK = 4, 6, 1
"""HTTP/2 (RFC 9113): two frame types, and the flag of an answer."""


def server(listen: str = "127.0.0.1:0", handshake: float = HANDSHAKE) -> ServerThread:
    return ServerThread("test", listen, None, threads=1, most_calls=10, patience=0.1, handshake=handshake)


async def anybody(_metadata: Metadata) -> None:
    """Admits every client."""


async def nothing(_server: grpc.aio.Server) -> Sequence[str]:
    return ("test.Service",)


def test_what_is_served_is_healthy() -> None:
    """Every added service answers a health check by its name; others are unknown."""
    with closing(server()) as thread, grpc.insecure_channel(thread.start(nothing, anybody)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health.Check(health_pb2.HealthCheckRequest(service="test.Service"), timeout=PATIENCE)
        assert health_pb2.HealthCheckResponse.SERVING == asked.status
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="test.Other"), timeout=PATIENCE)
    assert grpc.StatusCode.NOT_FOUND == unknown.value.code()


def test_a_port_that_is_taken_is_refused() -> None:
    """The error says what to do; and nothing of the second server is left."""
    with closing(server()) as first:
        address = first.start(nothing, anybody)
        second = server(address)
        with pytest.raises(UnavailableError, match="the port is taken"):
            second.start(nothing, anybody)
    assert not second.serving


def test_what_was_opened_before_the_server_ends_after_it() -> None:
    """What was opened after its start ends before it; closing twice is allowed."""
    thread, ended = server(), list[str]()

    async def fill(_server: grpc.aio.Server) -> Sequence[str]:
        thread.opened.callback(ended.append, "first")
        return ()

    async def behind() -> None:
        thread.opened.callback(ended.append, "last")

    thread.start(fill, anybody)
    thread.carry_out(behind())
    thread.close()
    thread.close()
    assert ["last", "first"] == ended


def test_work_that_waits_for_a_thread_is_dropped_at_the_end() -> None:
    """Running tasks are waited for; tasks that have not begun never run."""
    thread, begun, gate = server(), threading.Event(), threading.Event()
    thread.start(nothing, anybody)
    thread.pool.submit(lambda: (begun.set(), gate.wait(PATIENCE)))
    waiting = thread.pool.submit(int)
    assert begun.wait(PATIENCE)
    waiting.add_done_callback(lambda _dropped: gate.set())
    thread.close()
    assert waiting.cancelled()


def test_a_client_that_pings_often_keeps_its_connection() -> None:
    """gRPC's clients ping to measure a connection, besides to keep it alive; by default a server hangs up on that."""
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS)
    with closing(server()) as thread:
        host, _, port = thread.start(nothing, anybody).rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE) as line,
            line.makefile("rb") as heard,
        ):
            line.sendall(hello)
            for number in range(8):
                line.sendall(_frame(PING, payload=bytes(7) + bytes([number])))
                assert number == _answer_to_ping(heard)[-1]


def _frame(kind: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


def _answer_to_ping(heard: BinaryIO) -> bytes:
    """Of the next ping frame."""
    while head := heard.read(9):
        payload = heard.read(int.from_bytes(head[:3], "big"))
        if (head[3], head[4]) == (PING, ACK):
            return payload
    raise AssertionError("the server has hung up")


def silent(address: str) -> socket.socket:
    """A connection whose client sends nothing."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def is_cut(line: socket.socket) -> bool:
    """Whether the server closes it, sooner or later."""
    try:
        while line.recv(4096):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_who_connects_without_a_word_takes_no_more_than_a_part() -> None:
    """A client needs no token for that: the process has to reserve descriptors for the runtimes that it serves."""
    with closing(server()) as thread:
        address = thread.start(nothing, anybody)
        with ExitStack() as lines:
            for _ in range(10):
                lines.enter_context(silent(address))
            with silent(address) as further:
                assert is_cut(further)
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            asked = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE, wait_for_ready=True)
    assert health_pb2.HealthCheckResponse.SERVING == asked.status


def test_who_goes_on_to_say_nothing_is_hung_up_on() -> None:
    with closing(server(handshake=0.2)) as thread, silent(thread.start(nothing, anybody)) as line:
        assert is_cut(line)
